//! What runs and ends: one command a file.

pub(crate) mod check;
pub(crate) mod explain;

use std::io::IsTerminal as _;
use std::path::Path;

use tollgate_policy::Policy;

/// A larger file is no policy.
const MOST_BYTES: u64 = 4 << 20;

/// Reads a policy file, or says all that is wrong with it.
pub(crate) fn read_policy(file: &Path) -> Result<Policy, String> {
    let refused = |error: std::io::Error| format!("{}: {error}", file.display());
    let metadata = std::fs::metadata(file).map_err(refused)?;
    if !metadata.is_file() {
        return Err(format!("{}: this is no file", file.display()));
    }
    if metadata.len() > MOST_BYTES {
        return Err(format!(
            "{}: {} bytes, of which {MOST_BYTES} are the most",
            file.display(),
            metadata.len()
        ));
    }
    let source = std::fs::read(file).map_err(refused)?;
    let source = String::from_utf8(source).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        format!("{}:{line}:{column}: this is not UTF-8 text, which a policy file is", file.display())
    })?;
    Policy::read(file, &source).map_err(|faults| {
        if std::io::stderr().is_terminal() { faults.coloured() } else { faults.to_string() }
    })
}

/// Rows of cells, each column as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
