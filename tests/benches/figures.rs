//! Medians, and the lines that print them. Each figure is noted for [`baseline`].

use crate::baseline::{self, note};

/// One figure, measured several times.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => sorted[odd / 2],
            even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
        }
    }

    /// The value that so many percent of the samples do not exceed.
    pub fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied().unwrap_or(f64::NAN)
    }

    fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Prints the figure in seconds; `bytes` were moved in that time.
    pub fn show_seconds(&self, what: &str, bytes: Option<u64>) {
        let (median, least, most) = (self.median(), self.least(), self.most());
        let speed = bytes.map(|bytes| format!("   {:5.2} GB/s", bytes as f64 / median / 1e9)).unwrap_or_default();
        let base = note(what, median, "s");
        println!("  {what:<44} {median:7.3} s   ({least:.3} to {most:.3}){speed}{base}");
    }

    /// Prints the figure in another unit.
    pub fn show(&self, what: &str, unit: &str) {
        let base = note(what, self.median(), unit);
        println!("  {what:<44} {:7.3} {unit}   ({:.3} to {:.3}){base}", self.median(), self.least(), self.most());
    }
}

pub fn title(text: &str) {
    baseline::heading(text);
    println!("\n{text}");
}

/// A figure that is measured once.
pub fn once(what: &str, value: f64, unit: &str, remark: &str) {
    let base = note(what, value, unit);
    let digits = if value >= 1000.0 { 0 } else { 3 };
    println!("  {what:<44} {value:7.digits$} {unit}{remark}{base}");
}

/// A ratio, for orientation.
pub fn ratio(what: &str, ratio: f64) {
    let base = note(what, ratio, "");
    println!("  {what:<44} {ratio:7.2}{base}");
}

/// A ratio that should be at most `aim`.
pub fn at_most(what: &str, ratio: f64, aim: f64) {
    let verdict = if ratio <= aim { "met" } else { "missed" };
    let base = note(what, ratio, "");
    println!("  {what:<44} {ratio:7.2}     aim: at most {aim}: {verdict}{base}");
}

/// A ratio that should be at least `aim`.
pub fn at_least(what: &str, ratio: f64, aim: f64) {
    let verdict = if ratio >= aim { "met" } else { "missed" };
    let base = note(what, ratio, "");
    println!("  {what:<44} {ratio:7.2}     aim: at least {aim}: {verdict}{base}");
}

/// A figure that should stay below `aim`.
pub fn below(what: &str, value: f64, aim: f64, unit: &str) {
    let verdict = if value < aim { "met" } else { "missed" };
    let base = note(what, value, unit);
    println!("  {what:<44} {value:7.3} {unit}   aim: below {aim} {unit}: {verdict}{base}");
}
