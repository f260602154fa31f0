//! Why the lab cannot do what it was asked.

use std::path::{Path, PathBuf};

use tollgate_core::RuleError;
use tollgate_policy::EngineError;

/// Why the lab cannot do what it was asked. Each names the file and the line where there are some.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file cannot be read.
    #[error("{}: {error}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file cannot be read to its end: it is cut off, or damaged.
    #[error("{}:{line}: the file cannot be read on from here: {error}", .file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// The line that could not be read.
        line: u64,
        /// What the system says, or the decompressor.
        error: std::io::Error,
    },
    /// A file has something in it that it must not.
    #[error("{}:{line}: {why}", .file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// The line.
        line: u64,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// What was asked for makes no sense for these files.
    #[error("{0}")]
    Asked(String),
    /// The numbers make no rule.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The policy cannot be put in force.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl LabError {
    /// A file that is not what it should be, as the parser of YAML tells it.
    pub(crate) fn yaml(file: &Path, error: &serde_saphyr::Error) -> Self {
        let name = file.display().to_string();
        let told = error.to_string().replace("<input>", &name);
        Self::Asked(if told.contains(&name) { told } else { format!("{name}: {told}") })
    }
}
