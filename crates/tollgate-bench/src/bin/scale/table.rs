//! The table of figures: how it is printed, and how it is kept in a file.

use std::collections::HashMap;
use std::fmt::Write as _;

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A number, in the unit of its line.
    Number(f64),
    /// No number, and why: `refused`.
    Words(String),
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The thing that grows, and what is measured of it.
    pub(crate) what: String,
    /// How large it is.
    pub(crate) size: String,
    /// The measured value.
    pub(crate) value: Value,
    /// The unit of the value.
    pub(crate) unit: &'static str,
    /// The bar, in words. Empty: none.
    pub(crate) wanted: &'static str,
}

/// Figures of an earlier run, by what and size.
#[derive(Debug, Default)]
pub(crate) struct Earlier(HashMap<(String, String), String>);

const COLUMNS: &str = "what grows\tsize\tvalue\tunit";

impl Earlier {
    /// Reads a file that [`to_tsv`] wrote.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut figures = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') || line == COLUMNS {
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let [what, size, value, _unit] = fields[..] else {
                return Err(format!("line {}: {} columns, not 4: `{line}`", number + 1, fields.len()));
            };
            if figures.insert((what.to_owned(), size.to_owned()), value.to_owned()).is_some() {
                return Err(format!("line {}: `{what}` at `{size}` is there twice", number + 1));
            }
        }
        Ok(Self(figures))
    }

    /// The value of the same line, or `-`.
    pub(crate) fn value(&self, figure: &Figure) -> &str {
        self.0.get(&(figure.what.clone(), figure.size.clone())).map_or("-", String::as_str)
    }

    /// The lines that are not among `figures`.
    pub(crate) fn missing_from(&self, figures: &[Figure]) -> Vec<String> {
        let known = |(what, size): &&(String, String)| {
            figures.iter().any(|figure| figure.what == *what && figure.size == *size)
        };
        let mut missing: Vec<String> =
            self.0.keys().filter(|line| !known(line)).map(|(what, size)| format!("{what}, {size}")).collect();
        missing.sort();
        missing
    }
}

impl Value {
    /// Three digits, or all of a whole number.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Number(number) if *number >= 99.5 => format!("{number:.0}"),
            Self::Number(number) if *number >= 9.95 => format!("{number:.1}"),
            Self::Number(number) if *number >= 0.01 || *number == 0.0 => format!("{number:.2}"),
            Self::Number(number) => format!("{number:.4}"),
            Self::Words(words) => words.clone(),
        }
    }
}

/// The head of the table.
pub(crate) const HEAD: &str =
    "| what grows | size | before | after | unit | wanted |\n|---|---|---:|---:|---|---|";

impl Figure {
    /// The figure as a line of the table.
    pub(crate) fn line(&self, earlier: &Earlier) -> String {
        let Self { what, size, value, unit, wanted } = self;
        format!("| {what} | {size} | {} | {} | {unit} | {wanted} |", earlier.value(self), value.shown())
    }
}

/// The figures as a file, with comments at its head.
pub(crate) fn to_tsv(comments: &[String], figures: &[Figure]) -> String {
    let mut text = String::new();
    for comment in comments {
        let _ = writeln!(text, "# {comment}");
    }
    let _ = writeln!(text, "{COLUMNS}");
    for Figure { what, size, value, unit, .. } in figures {
        let _ = writeln!(text, "{what}\t{size}\t{}\t{unit}", value.shown());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(what: &str, size: &str, value: impl Into<Value>) -> Figure {
        Figure { what: what.into(), size: size.into(), value: value.into(), unit: "us", wanted: "flat" }
    }

    #[test]
    fn a_file_of_figures_is_read_as_it_was_written() {
        let figures = [
            figure("limits", "10", 0.5),
            figure("limits", "10 000", 12_345.6),
            figure("tenants", "70 000", Value::Words("refused".to_owned())),
        ];
        let earlier = Earlier::read(&to_tsv(&["commit 1".to_owned()], &figures)).unwrap();
        assert_eq!(figures.each_ref().map(|figure| earlier.value(figure)), ["0.50", "12346", "refused"]);
        assert_eq!(earlier.value(&figure("limits", "11", 0.5)), "-");
        assert_eq!(earlier.missing_from(&figures[1..]), ["limits, 10"]);
        assert_eq!(figures[0].line(&earlier), "| limits | 10 | 0.50 | 0.50 | us | flat |");
    }

    #[test]
    fn a_bad_file_of_figures_is_refused_with_its_line() {
        let error = Earlier::read("# head\nlimits\t10\t1\n").unwrap_err();
        assert_eq!(error, "line 2: 3 columns, not 4: `limits\t10\t1`");
        let error = Earlier::read("limits\t10\t1\tus\nlimits\t10\t2\tus\n").unwrap_err();
        assert_eq!(error, "line 2: `limits` at `10` is there twice");
    }

    #[test]
    fn values_have_three_digits() {
        let shown = [0.0, 0.001, 0.5, 9.94, 9.95, 12.34, 99.5, 123.4, 1e6].map(|n| Value::Number(n).shown());
        assert_eq!(shown, ["0.00", "0.0010", "0.50", "9.94", "9.9", "12.3", "100", "123", "1000000"]);
    }
}
