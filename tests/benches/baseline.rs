//! The figures of this run, stored for later ones, and those of a stored run, with which they are compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use holdfast_core::durable::{self, CreationMode};
use procfs::{CpuInfo, Current as _, Meminfo};
use serde::{Deserialize, Serialize};

use crate::Result;

/// What a stored run contains. Figures of different machines are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    processor: String,
    processors: usize,
    memory_kib: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Run {
    machine: Machine,
    /// Small data, measured once.
    smoke: bool,
    /// By heading and name, as they are printed.
    figures: BTreeMap<String, Figure>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Figure {
    /// A median.
    value: f64,
    unit: String,
}

#[derive(Default)]
struct Runs {
    heading: String,
    this: Run,
    base: Option<Run>,
    /// Figures that the base lacks.
    missing: usize,
    compared: usize,
}

static RUNS: LazyLock<Mutex<Runs>> = LazyLock::new(Mutex::default);

fn runs() -> MutexGuard<'static, Runs> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins the run, which is to be stored in `file`. `base` is a file that `--save` wrote.
pub fn begin(smoke: bool, file: Option<&Path>, base: Option<&Path>) -> Result<()> {
    // Before minutes of measuring.
    let directory = file.and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(format!("the run cannot be stored: {} is no directory", directory.display()).into());
    }
    let machine = Machine::here()?;
    let base = base.map(|path| read(path, &machine, smoke)).transpose()?;
    *runs() = Runs { this: Run { machine, smoke, figures: BTreeMap::new() }, base, ..Runs::default() };
    Ok(())
}

fn read(path: &Path, here: &Machine, smoke: bool) -> Result<Run> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let run: Run =
        serde_json::from_str(&text).map_err(|error| format!("{shown} is not a run that `--save` stored: {error}"))?;
    if run.machine != *here {
        let other = format!("{} × {}", run.machine.processors, run.machine.processor);
        return Err(format!("{shown} was measured on another machine ({other}); store a run of this one").into());
    }
    if run.smoke != smoke {
        let what = if run.smoke { "with `--smoke`" } else { "without `--smoke`" };
        return Err(format!("{shown} was measured {what}; compare with a run of the same size").into());
    }
    Ok(run)
}

/// The figures that follow belong to this heading.
pub fn heading(text: &str) {
    text.clone_into(&mut runs().heading);
}

/// Notes a figure. Returns what is printed behind it: its ratio to that of the base.
pub fn note(what: &str, value: f64, unit: &str) -> String {
    if !value.is_finite() {
        // Nothing was measured, or a quotient of zeros.
        return String::new();
    }
    let mut runs = runs();
    let mut name = format!("{}: {what}", runs.heading);
    while runs.this.figures.contains_key(&name) {
        name.push('\'');
    }
    let of_base = runs.base.as_ref().map(|base| base.figures.get(&name).filter(|figure| figure.unit == unit));
    let shown = match of_base.map(|figure| figure.map(|figure| value / figure.value)) {
        None => String::new(),
        Some(Some(ratio)) => {
            runs.compared += 1;
            // There is none to a figure of zero.
            if ratio.is_finite() { format!("   {ratio:.2} of the base") } else { String::new() }
        }
        Some(None) => {
            runs.missing += 1;
            "   not in the base".to_owned()
        }
    };
    runs.this.figures.insert(name, Figure { value, unit: unit.to_owned() });
    shown
}

/// After the last figure: prints how many were compared, and stores the run if there is a file for it.
pub fn end(file: Option<&Path>) -> Result<()> {
    let runs = runs();
    if runs.base.is_some() {
        println!("\n{} figures compared with the base, {} are not in it", runs.compared, runs.missing);
    }
    let Some(path) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(&runs.this)?;
    durable::replace(path, CreationMode::Umask, text.as_bytes())?;
    println!("{} figures stored in {}", runs.this.figures.len(), path.display());
    Ok(())
}

impl Machine {
    fn here() -> Result<Self> {
        Ok(Machine {
            processor: CpuInfo::current()?.model_name(0).unwrap_or_default().to_owned(),
            processors: std::thread::available_parallelism()?.get(),
            memory_kib: Meminfo::current()?.mem_total / 1024,
        })
    }
}
