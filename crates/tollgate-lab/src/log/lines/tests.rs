use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tollgate_testkit::Directory;

use super::*;

fn lines(bytes: &[u8]) -> Result<Vec<String>, LabError> {
    let directory = Directory::new();
    let file = directory.path().join("log");
    std::fs::write(&file, bytes).unwrap();
    let mut lines = Lines::open(&file, &Arc::default())?;
    let mut all = Vec::new();
    while let Some((number, line)) = lines.next()? {
        all.push(match line {
            Line::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Line::TooLong => "(too long)".to_owned(),
        });
        assert_eq!((number, lines.number()), (all.len() as u64, all.len() as u64));
    }
    Ok(all)
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_end_with_lf_or_crlf_or_the_file() {
    for (bytes, expected) in [
        ("", &[][..]),
        ("a", &["a"]),
        ("a\n", &["a"]),
        ("a\r\nb\n\nc", &["a", "b", "", "c"]),
        ("\r\n\n", &["", ""]),
    ] {
        assert_eq!(lines(bytes.as_bytes()).unwrap(), expected, "{bytes:?}");
        assert_eq!(lines(&compressed(bytes.as_bytes())).unwrap(), expected, "{bytes:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_passed_over_wherever_it_stands() {
    let long = "x".repeat(LONGEST_LINE + 1);
    let longest = "y".repeat(LONGEST_LINE);
    let huge = "z".repeat(10 << 20);
    let all = lines(format!("a\n{long}\nb\n{longest}\n{huge}\nc\n{huge}").as_bytes()).unwrap();
    assert_eq!(all, ["a", "(too long)", "b", &longest, "(too long)", "c", "(too long)"]);
}

#[test]
fn compressed_files_may_be_several_after_each_other() {
    let both = [compressed(b"a\nb\n"), compressed(b"c\n")].concat();
    assert_eq!(lines(&both).unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    let whole = compressed("a line of the log\n".repeat(100_000).as_bytes());
    let error = lines(&whole[..whole.len() / 2]).unwrap_err();
    assert!(matches!(error, LabError::Broken { line: 2.., .. }), "{error}");
}
