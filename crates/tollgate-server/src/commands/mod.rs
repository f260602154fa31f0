//! What runs and ends: one command a file.

pub(crate) mod advise;
pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod import;
mod lab;
pub(crate) mod playground;
pub(crate) mod replay;
pub(crate) mod simulate;
mod simulate_cluster;
pub(crate) mod test;
pub(crate) mod top;

/// Rows of cells, each column as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        // By hand, because the widths of format strings end at 65535.
        let pad = |(cell, width): (&String, &usize)| cell.clone() + &" ".repeat(width - cell.chars().count());
        let cells: Vec<String> = row.iter().zip(&widths).map(pad).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
