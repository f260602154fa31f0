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
}

impl Faults {
    /// Each of them, as they stand in the file.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter()
    }

    /// The line and the column of a fault, both from 1.
    pub fn position(&self, fault: &Fault) -> (usize, usize) {
        let before = &self.source[..self.source.floor_char_boundary(fault.span.start)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
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
        let place = AnnotationKind::Primary.span(first_line(&self.source, span));
        let snippet = Snippet::source(&self.source).path(&self.file).annotation(place);
        let title = Level::ERROR.primary_title(&fault.message).element(snippet);
        let report = match &fault.help {
            Some(help) => [title.element(Level::HELP.message(help))],
            None => [title],
        };
        renderer.render(&report)
    }
}

/// The most faults that are shown: to show one takes a look at the whole file.
const MOST_SHOWN: usize = 100;

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
