//! What an agent does again and again wakes it at the same time: an agent without work costs its wake-ups.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Returns at the next multiple of `period` since the first call in this process.
pub async fn tick(period: Duration) {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let begun = *BEGUN.get_or_init(Instant::now);
    sleep_until(next(begun, Instant::now(), period)).await;
}

fn next(begun: Instant, now: Instant, period: Duration) -> Instant {
    let since = now.saturating_duration_since(begun).as_nanos();
    let into = since.checked_rem(period.as_nanos()).unwrap_or(0);
    now + period.saturating_sub(Duration::from_nanos_u128(into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_that_divide_each_other_end_together() {
        let begun = Instant::now();
        let (one, three) = (Duration::from_secs(1), Duration::from_secs(3));
        let after = |millis| begun + Duration::from_millis(millis);
        assert_eq!(next(begun, begun, one), after(1000));
        assert_eq!(next(begun, after(2100), one), after(3000));
        assert_eq!(next(begun, after(200), three), after(3000));
        assert_eq!(next(begun, after(3000), three), after(6000), "not at once again");
        assert_eq!(next(begun, after(500), Duration::ZERO), after(500));
    }
}
