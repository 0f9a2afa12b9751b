//! The date, as logs and reports have it.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// Seconds since 1970.
pub fn unix_seconds() -> f64 {
    // A clock before 1970 is wrong anyway.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A time since 1970 as `2026-02-28T23:59:59Z`, in whole seconds.
pub fn utc(unix_seconds: f64) -> String {
    let seconds = unix_seconds.max(0.0) as i64;
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, [hour, minute, second]) = (at.date(), [at.hour(), at.minute(), at.second()]);
    // A date is displayed as 2026-02-28.
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Seconds that all threads of this process have computed; `None` where the system does not say.
pub fn process_cpu_seconds() -> Option<f64> {
    /// Linux counts in hundredths of a second, whatever its clock.
    const TICKS_PER_SECOND: f64 = 100.0;
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold anything; user and system time are the 12th
    // and 13th field after it.
    let (_, fields) = status.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_processor_time() {
        let Some(before) = process_cpu_seconds() else { return };
        let start = std::time::Instant::now();
        // Until the next tick, however many others want the processor.
        while process_cpu_seconds() == Some(before) && start.elapsed().as_secs() < 60 {
            std::hint::spin_loop();
        }
        // A tick is a hundredth of a second, less the rounding of a difference; both cores may tick.
        let spent = process_cpu_seconds().expect("known a moment ago") - before;
        assert!((0.005..60.0).contains(&spent), "{spent}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date -u -d @N` prints them.
        for (seconds, text) in [
            (0.0, "1970-01-01T00:00:00Z"),
            (951_827_696.9, "2000-02-29T12:34:56Z"),
            (1_772_323_199.0, "2026-02-28T23:59:59Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
