//! Advice on logs that are larger than what is kept of them.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tollgate_lab::{Advice, Grouping, LabError, LogOptions, Logs, Progress, advise};
use tollgate_testkit::{Counting, Directory, Random};

const CLIENTS: u64 = 100;

/// More requests than are kept in memory.
const LARGE: u64 = 150_000;

/// Rows of a table: requests of a hundred clients on three routes, ten per second. A line may be up to 500 ms late.
fn rows(count: u64) -> Vec<String> {
    let mut random = Random::new(1);
    let row = |i: u64| {
        let millis = 1_700_000_000_000 + i * 100 - random.below(500);
        let (client, route) = (random.below(CLIENTS) * random.below(CLIENTS) / CLIENTS, random.below(3));
        format!("10.0.0.{client},{}.{:03},/r{route}/x\n", millis / 1000, millis % 1000)
    };
    (0..count).map(row).collect()
}

fn write(directory: &Directory, name: &str, rows: &[String]) -> PathBuf {
    let mut text = String::from("ip,ts,path\n");
    rows.iter().for_each(|row| text.write_str(row).unwrap());
    directory.write(name, &text)
}

fn advice(file: &Path, grouping: &Grouping, progress: &mut dyn FnMut(Progress)) -> Result<Advice, LabError> {
    let logs = Logs { files: vec![file.to_path_buf()], options: LogOptions::default() };
    advise(&logs, grouping, 0.99, progress)
}

/// The advice, and the most bytes that were allocated while the log was read.
fn advice_and_bytes(file: &Path, grouping: &Grouping) -> (Advice, usize) {
    let (before, mut most) = (Counting::bytes(), 0);
    let advice = advice(file, grouping, &mut |_| most = most.max(Counting::bytes())).unwrap();
    (advice, most.saturating_sub(before))
}

#[test]
fn memory_of_advice_does_not_grow_with_lines() {
    let (directory, rows) = (Directory::new(), rows(4 * LARGE));
    let bytes = [2, 1].map(|part| {
        let rows = &rows[..rows.len() / part];
        let file = write(&directory, "log.csv", rows);
        let (advice, bytes) = advice_and_bytes(&file, &Grouping::All);
        assert_eq!(advice.counts.requests, rows.len() as u64);
        bytes
    });
    // 24 bytes per request would be 7 MB more.
    assert!(bytes[1] < bytes[0] + 100_000, "{bytes:?} bytes for {} and {} lines", 2 * LARGE, 4 * LARGE);
    assert!(bytes[1] < 10_000_000, "{bytes:?}");
}

#[test]
fn advice_is_the_same_however_a_log_is_read() {
    let directory = Directory::new();
    let mut rows = rows(LARGE);
    let ordered = write(&directory, "ordered.csv", &rows);
    // The first request comes last, too far from its place to be sorted on the way.
    rows.rotate_left(1);
    let rotated = write(&directory, "rotated.csv", &rows);
    for grouping in [Grouping::All, Grouping::Route] {
        let [(one, streamed), (other, sorted)] =
            [&ordered, &rotated].map(|file| advice_and_bytes(file, &grouping));
        assert_eq!(format!("{:?}", one.groups), format!("{:?}", other.groups));
        assert_eq!(one.groups.len(), if grouping == Grouping::All { 1 } else { 3 });
        assert!(streamed != sorted, "both were read in the same way, in {sorted} bytes");
    }
}

/// What `change` does to the log after it was read once.
fn advice_on_changed(rows: &[String], change: fn(&Path)) -> Result<Advice, LabError> {
    let directory = Directory::new();
    let file = write(&directory, "log.csv", rows);
    let mut is_changed = false;
    advice(&file, &Grouping::All, &mut |Progress { read, of }| {
        if read > of / 3 && !is_changed {
            is_changed = true;
            change(&file);
        }
    })
}

#[test]
fn a_log_that_grows_while_it_is_read_is_advised_on_as_it_was() {
    let rows = rows(LARGE);
    let append = |file: &Path| {
        let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
        file.write_all("10.0.9.9,1900000000.000,/new/x\n".repeat(1000).as_bytes()).unwrap();
    };
    let advices = [|_: &Path| {}, append].map(|change| advice_on_changed(&rows, change).unwrap());
    assert_eq!(format!("{:?}", advices[0].groups), format!("{:?}", advices[1].groups));
}

#[test]
fn a_log_that_is_replaced_while_it_is_read_is_refused() {
    let rows = rows(LARGE);
    let replace = |file: &Path| {
        let text = fs::read_to_string(file).unwrap().replace("10.0.0.7,", "10.0.0.8,");
        fs::write(file, text).unwrap();
    };
    let cut = |file: &Path| fs::write(file, "ip,ts,path\n10.0.0.1,1700000000.000,/r1/x\n").unwrap();
    for change in [replace, cut] {
        let error = advice_on_changed(&rows, change).unwrap_err().to_string();
        assert_eq!(error, "the log was changed while it was read: advise on a copy of it");
    }
}
