//! Numbers as people read them.

use archipelago_train::metric::Metric;

/// `12,345`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `2 nodes`, `3 classes`
pub fn counted(number: u64, what: &str) -> String {
    let ending = match number {
        1 => "",
        _ if what.ends_with('s') || what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", count(number))
}

/// `1.2 MB`, in powers of 1000.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if number < 1000 {
        return format!("{number} B");
    }
    let (mut value, mut unit) = (number as f64 / 1e3, 0);
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1.23M` in three digits; numbers of up to five digits are written out.
pub fn short(number: u64) -> String {
    const UNITS: [&str; 5] = ["k", "M", "G", "T", "P"];
    if number < 100_000 {
        return count(number);
    }
    let (mut value, mut unit) = (number as f64 / 1e3, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = usize::from(value < 99.95) + usize::from(value < 9.995);
    format!("{value:.digits$}{}", UNITS[unit])
}

/// `23.4M edges/s`; nothing for work too short to tell.
pub fn rate(number: u64, unit: &str, secs: f64) -> Option<String> {
    (number > 0 && secs > 0.0).then(|| {
        let per_sec = (number as f64 / secs) as u64;
        if unit == "bytes" { bytes(per_sec) + "/s" } else { format!("{} {unit}/s", short(per_sec)) }
    })
}

/// The number of bytes that `8G`, `8GB`, `512 MiB` or `4096` stands for: powers of 1000, with an `i` of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("expected a number of bytes such as `8G` or `512MiB`, found `{text}`");
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (base, letter) = unit.strip_suffix('i').map_or((1000.0f64, unit), |letter| (1024.0, letter));
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == letter).ok_or_else(wrong)?;
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Ok((number * base.powi(power as i32)) as u64)
}

/// The bytes per second that `1gbit`, `100 Mbit/s`, `125MB/s` or `1e9` stands for.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("expected a rate such as `1gbit` or `125MB/s`, found `{text}`");
    let lower = text.trim().to_lowercase();
    let lower = lower.strip_suffix("/s").unwrap_or(&lower);
    let (number, bits) = match lower.strip_suffix("bits").or_else(|| lower.strip_suffix("bit")) {
        Some(number) => (number, 8.0),
        None => (lower, 1.0),
    };
    let bytes = parse_bytes(number).map_err(|_| wrong())?;
    if bytes == 0 { Err(wrong()) } else { Ok(bytes as f64 / bits) }
}

/// `8.4 ms`, `0.21 s`, `3 min 12 s`
pub fn seconds(secs: f64) -> String {
    if secs < 0.09995 {
        return format!("{:.1} ms", secs * 1e3);
    }
    if secs < 99.5 {
        return if secs < 9.95 { format!("{secs:.2} s") } else { format!("{secs:.1} s") };
    }
    let whole = secs.round() as u64;
    match whole / 3600 {
        0 => format!("{} min {} s", whole / 60, whole % 60),
        hours @ ..100 => format!("{hours} h {} min", whole % 3600 / 60),
        hours => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// `81.2 %`
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// `0.812`, or a dash for a score that there is none of.
pub fn score(score: Option<f64>) -> String {
    score.map_or("-".into(), |score| format!("{score:.4}"))
}

/// `accuracy`, `micro-f1`, `auc`, `mrr`, `hits@10`: what users call a score, as in the run file.
pub fn metric(metric: Metric) -> String {
    match metric {
        Metric::RocAuc => "auc".into(),
        _ => metric.name().replace('_', "-"),
    }
}

/// A bar of at most `width` characters whose length is `value` out of `largest`.
pub fn bar(value: u64, largest: u64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths =
        if largest == 0 { 0 } else { (value as u128 * 8 * width as u128 / u128::from(largest)) as usize };
    let mut text = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        text.push(EIGHTHS[eighths % 8]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_comma_every_three_digits() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "edge"), counted(0, "edge")), ("1 edge".into(), "0 edges".into()));
    }

    #[test]
    fn bytes_and_seconds_use_the_unit_that_keeps_them_short() {
        assert_eq!(
            [999, 1000, 999_999, 1 << 30, u64::MAX].map(bytes),
            ["999 B", "1.0 kB", "1.0 MB", "1.1 GB", "18446.7 PB"]
        );
        assert_eq!(
            [0.0041, 0.21, 12.0, 192.4, 7260.0].map(seconds),
            ["4.1 ms", "0.21 s", "12.0 s", "3 min 12 s", "2 h 1 min"]
        );
    }

    #[test]
    fn short_numbers_have_three_digits_once_they_are_long() {
        assert_eq!(
            [0, 99_999, 100_000, 999_499, 999_500, 1_234_567, 56_700_000, u64::MAX].map(short),
            ["0", "99,999", "100k", "999k", "1.00M", "1.23M", "56.7M", "18447P"]
        );
        assert_eq!(rate(3_000_000, "edges", 1.5).as_deref(), Some("2.00M edges/s"));
        assert_eq!((rate(0, "edges", 1.5), rate(8, "edges", 0.0)), (None, None));
    }

    #[test]
    fn bytes_are_read_in_powers_of_1000_or_1024() {
        let read =
            ["8G", "8gb", "1.5 MB", "2GiB", "4096", "10k", "7 B"].map(|text| parse_bytes(text).unwrap());
        assert_eq!(read, [8_000_000_000, 8_000_000_000, 1_500_000, 2 << 30, 4096, 10_000, 7]);
        for wrong in ["", "G", "8X", "-1", "eight", "1.2.3M", "8 G G"] {
            assert!(parse_bytes(wrong).unwrap_err().contains("8G"), "{wrong}");
        }
    }

    #[test]
    fn rates_are_read_in_bits_or_bytes() {
        let read = ["1gbit", "100 Mbit/s", "125MB/s", "8bit", "2G"].map(|text| parse_rate(text).unwrap());
        assert_eq!(read, [125e6, 12.5e6, 125e6, 1.0, 2e9]);
        for wrong in ["", "fast", "1gbut", "0", "-1mbit"] {
            assert!(parse_rate(wrong).unwrap_err().contains("1gbit"), "{wrong}");
        }
    }

    #[test]
    fn metrics_are_called_as_in_the_run_file() {
        let names = [Metric::MicroF1, Metric::RocAuc, Metric::Hits(10)].map(metric);
        assert_eq!(names, ["micro-f1", "auc", "hits@10"]);
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!((bar(8, 8, 4).as_str(), bar(3, 8, 4).as_str(), bar(0, 0, 4).as_str()), ("████", "█▌", ""));
    }
}
