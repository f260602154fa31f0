//! What is wrong with a policy file, and where.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// One thing that is wrong, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The bytes of the file it stands in.
    pub span: Range<usize>,
    /// What was found.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

impl Fault {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// All that is wrong with a policy file. Shown as text, each fault has its file, line and column, the place
/// marked in its line, and what would be right. The first 100 are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    pub(crate) file: String,
    pub(crate) source: String,
    pub(crate) faults: Vec<Fault>,
    /// The number of each line of `source`, from 1, where it has some lines of the file only.
    pub(crate) line_numbers: Option<Vec<usize>>,
}

impl Faults {
    /// The faults of a file, in order of place. Only the lines that have a fault are kept, because the file may be large.
    pub(crate) fn of_lines(file: String, text: &str, mut faults: Vec<Fault>) -> Self {
        let (mut source, mut line_numbers) = (String::new(), Vec::new());
        let (mut number, mut counted) = (1, 0);
        for fault in &mut faults {
            let at = text.floor_char_boundary(fault.span.start);
            let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            number += text[counted..start].matches('\n').count();
            counted = start;
            let line = text[start..].split('\n').next().unwrap_or_default();
            let end = line.floor_char_boundary(LONGEST_LINE.max(fault.span.end.saturating_sub(start)));
            let [from, to] =
                [fault.span.start, fault.span.end].map(|at| source.len() + (at - start).min(end));
            fault.span = from..to;
            // A line with two faults is there twice.
            line_numbers.push(number);
            source.push_str(&line[..end]);
            source.push('\n');
        }
        Self { file, source, faults, line_numbers: Some(line_numbers) }
    }

    /// Each of them, as they stand in the file.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter()
    }

    /// The line and the column of a fault, both from 1.
    pub fn position(&self, fault: &Fault) -> (usize, usize) {
        let before = &self.source[..self.source.floor_char_boundary(fault.span.start)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (self.line_number(before), before[line_start..].chars().count() + 1)
    }

    /// The number of the line that begins after the last line break of `before`.
    fn line_number(&self, before: &str) -> usize {
        let place = before.matches('\n').count();
        match &self.line_numbers {
            Some(numbers) => numbers.get(place).copied().unwrap_or(place + 1),
            None => place + 1,
        }
    }

    /// As shown on a terminal, with colours.
    pub fn coloured(&self) -> String {
        self.rendered(&Renderer::styled())
    }

    fn rendered(&self, renderer: &Renderer) -> String {
        let shown = self.faults.iter().take(MOST_SHOWN).map(|fault| self.render(fault, renderer));
        let more = self.faults.len().saturating_sub(MOST_SHOWN);
        let more = (more > 0).then(|| format!("{}: {more} more faults are not shown", self.file));
        shown.chain(more).collect::<Vec<_>>().join("\n\n")
    }

    fn render(&self, fault: &Fault, renderer: &Renderer) -> String {
        let boundary = |at: usize| self.source.floor_char_boundary(at);
        let span = boundary(fault.span.start)..boundary(fault.span.end.max(fault.span.start));
        let mut span = first_line(&self.source, span);
        let mut snippet = Snippet::source(&self.source);
        if self.line_numbers.is_some() {
            let start = self.source[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
            let line = self.source[start..].split('\n').next().unwrap_or_default();
            let number = self.line_number(&self.source[..start]);
            (span, snippet) =
                (span.start - start..span.end - start, Snippet::source(line).line_start(number));
        }
        let snippet = snippet.path(&self.file).annotation(AnnotationKind::Primary.span(span));
        let title = Level::ERROR.primary_title(&fault.message).element(snippet);
        let report = match &fault.help {
            Some(help) => [title.element(Level::HELP.message(help))],
            None => [title],
        };
        renderer.render(&report)
    }
}

/// The most faults that are shown: to show one takes a look at the whole file.
pub(crate) const MOST_SHOWN: usize = 100;

/// The most bytes of a line that are kept for a fault at its start.
const LONGEST_LINE: usize = 1000;

/// The part of a span on its first line: a section of twenty lines is marked where it begins.
fn first_line(source: &str, span: Range<usize>) -> Range<usize> {
    let length = source[span.clone()].find('\n').unwrap_or(span.len());
    span.start..span.start + length
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered(&Renderer::plain()))
    }
}

impl std::error::Error for Faults {}
