//! Where the policy comes from: a file, files of envoyproxy/ratelimit, both, or neither.

use std::fmt;
use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use tollgate_policy::{EnvoyImport, Faults, Policy, TenantsFileError, import_envoy};

use crate::cli::Serve;
use crate::tls;

/// What runs when no policy is given.
const BUILT_IN: &str = include_str!("built_in.yaml");

/// Where the policy comes from.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) config: Option<PathBuf>,
    /// A folder with files of envoyproxy/ratelimit, or one of them.
    pub(crate) envoy_config: Option<PathBuf>,
    /// Whether the limits of those count denied requests, too.
    pub(crate) count_denied: bool,
    max_policy_bytes: u64,
    last: Mutex<LastRead>,
}

/// The files when they were last read.
#[derive(Debug, Default)]
struct LastRead {
    tenants_file: Option<PathBuf>, // that the policy file named
    stamp: Option<Stamp>,          // from before the reading, so that a change during it is noticed
}

/// What tells two versions of files apart without reading them. Following links, so that a swapped one is seen.
pub(crate) type Stamp = Vec<(PathBuf, SystemTime, u64, u64)>;

impl Source {
    pub(crate) fn new(options: &Serve) -> Self {
        Self {
            config: options.config.clone(),
            envoy_config: options.envoy_config.clone(),
            count_denied: options.count_denied,
            max_policy_bytes: options.policy_bytes.max_policy_bytes,
            last: Mutex::default(),
        }
    }

    pub(crate) fn is_built_in(&self) -> bool {
        self.config.is_none() && self.envoy_config.is_none()
    }

    /// Reads the policy, or returns all that is wrong with it.
    pub(crate) fn read(&self) -> Result<Policy, String> {
        if self.is_built_in() {
            return Policy::read(Path::new("built-in policy"), BUILT_IN).map_err(|faults| shown(&faults));
        }
        let files = self.files_stamp();
        let stamp = self.with_tenants_file(files.clone());
        self.last.lock().stamp = stamp;
        let policy = match &self.config {
            Some(config) => self.read_config(config, files)?,
            None => Policy::default(),
        };
        let Some(envoy_config) = &self.envoy_config else { return Ok(policy) };
        let EnvoyImport { policy: imported, warnings } =
            read_envoy(envoy_config, self.count_denied, self.max_policy_bytes)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let imported =
            Policy::read(Path::new("imported policy"), &imported).map_err(|faults| shown(&faults))?;
        let environment_values = policy.environment_values.clone();
        policy.with_limits_of(imported).map_err(|error| environment_values.hide(&error).into_owned())
    }

    /// Reads the policy file and its tenants file. `files` is the stamp of the files before.
    fn read_config(&self, config: &Path, files: Option<Stamp>) -> Result<Policy, String> {
        let source = read_text(config, self.max_policy_bytes)?;
        let mut policy =
            Policy::read_without_tenants_file(config, &source).map_err(|faults| shown(&faults))?;
        // Also where the tenants file has a fault: it is read again when it changes.
        let tenants_file = policy.tenants_file.as_ref().map(PathBuf::from);
        let is_another =
            std::mem::replace(&mut self.last.lock().tenants_file, tenants_file.clone()) != tenants_file;
        if is_another {
            let stamp = self.with_tenants_file(files);
            self.last.lock().stamp = stamp;
        }
        policy.read_tenants_file().map_err(|error| shown_tenants_file(&error))?;
        Ok(policy)
    }

    /// The files as they were when they were last read.
    pub(crate) fn last_stamp(&self) -> Option<Stamp> {
        self.last.lock().stamp.clone()
    }

    /// How its files are now. None where the policy file is missing, as it is for a moment when it is replaced.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.with_tenants_file(self.files_stamp())
    }

    /// A stamp of other files with that of the tenants file.
    fn with_tenants_file(&self, files: Option<Stamp>) -> Option<Stamp> {
        let mut files = files?;
        files.extend(self.last.lock().tenants_file.clone().map(stamp_or_missing));
        Some(files)
    }

    /// The stamp of all files but the tenants file.
    fn files_stamp(&self) -> Option<Stamp> {
        let config = self.config.iter().map(|file| stamp(file.clone())).collect::<Option<Stamp>>()?;
        // A missing file of envoyproxy/ratelimit is reported when it is read.
        let envoy = self.envoy_config.as_deref().map_or(Ok(Vec::new()), envoy_files).unwrap_or_default();
        Some(config.into_iter().chain(envoy.into_iter().map(stamp_or_missing)).collect())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = [&self.config, &self.envoy_config].into_iter().flatten();
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        f.write_str(if files.is_empty() { "built in".to_owned() } else { files.join(" and ") }.as_str())
    }
}

fn stamp(file: PathBuf) -> Option<(PathBuf, SystemTime, u64, u64)> {
    let metadata = std::fs::metadata(&file).ok()?;
    Some((file, metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

fn stamp_or_missing(file: PathBuf) -> (PathBuf, SystemTime, u64, u64) {
    stamp(file.clone()).unwrap_or((file, SystemTime::UNIX_EPOCH, 0, 0))
}

/// The files of a policy that cannot be used, each with the reason: `serve` and `check` refuse the same.
pub(crate) fn file_faults(policy: &Policy) -> Vec<String> {
    let mut faults: Vec<String> = policy.unusable_files().iter().map(ToString::to_string).collect();
    // A certificate and a key that can be read may still not belong together.
    if !faults.iter().any(|fault| fault.starts_with("tls."))
        && let Some(Err(error)) = policy.tls.as_ref().map(tls::acceptors)
    {
        faults.push(policy.environment_values.hide(&error).into_owned());
    }
    faults
}

/// Reads a policy file of at most `max_bytes`, with its tenants file, or returns all that is wrong with it.
pub(crate) fn read_policy(file: &Path, max_bytes: u64) -> Result<Policy, String> {
    Policy::read(file, &read_text(file, max_bytes)?).map_err(|faults| shown(&faults))
}

/// [`read_policy`], with the faults of the tenants file apart. Where there are any, the policy is without this file.
pub(crate) fn read_policy_and_tenants_file(
    file: &Path,
    max_bytes: u64,
) -> Result<(Policy, Option<TenantsFileError>), String> {
    let source = read_text(file, max_bytes)?;
    let mut policy = Policy::read_without_tenants_file(file, &source).map_err(|faults| shown(&faults))?;
    let fault = policy.read_tenants_file().err();
    Ok((policy, fault))
}

/// Makes a policy of a file of envoyproxy/ratelimit, or of all files in a directory.
pub(crate) fn read_envoy(path: &Path, count_denied: bool, max_bytes: u64) -> Result<EnvoyImport, String> {
    let mut files = Vec::new();
    for file in envoy_files(path)? {
        let source = read_text(&file, max_bytes)?;
        files.push((file, source));
    }
    import_envoy(&files, count_denied).map_err(|wrong| {
        let mut faults: Vec<String> = wrong.iter().map(shown).collect();
        if path.is_dir() {
            let path = path.display();
            faults.push(format!("help: every file in {path} is read, unless its name begins with a dot"));
        }
        faults.join("\n\n")
    })
}

/// The file, or every file of a directory that is not hidden, in the order of their names, as the reference reads them.
/// Subdirectories, pipes and sockets are skipped. A link counts as what it points to.
fn envoy_files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let refused = |error: std::io::Error| format!("{}: {error}", path.display());
    if !std::fs::metadata(path).map_err(refused)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for file in std::fs::read_dir(path).map_err(refused)? {
        let file = file.map_err(refused)?.path();
        // Editors keep swap files under such names, and Kubernetes the directory `..data` of a mounted ConfigMap.
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // Reading a link that points nowhere reports the error.
        let is_readable = std::fs::metadata(&file).map_or(true, |metadata| metadata.is_file());
        if !is_hidden && is_readable {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!(
            "{}: no files of limits in this directory; names that begin with a dot are skipped",
            path.display()
        ));
    }
    Ok(files)
}

fn read_text(file: &Path, max_bytes: u64) -> Result<String, String> {
    let refused = |error: std::io::Error| format!("{}: {error}", file.display());
    let metadata = std::fs::metadata(file).map_err(refused)?;
    if !metadata.is_file() {
        return Err(format!("{}: not a regular file", file.display()));
    }
    let too_large = |bytes: u64| {
        let file = file.display();
        format!(
            "{file}: the file has {bytes} bytes; at most {max_bytes} are read: pass a larger --max-policy-bytes"
        )
    };
    if metadata.len() > max_bytes {
        return Err(too_large(metadata.len()));
    }
    let mut source = Vec::new();
    let reading =
        File::open(file).and_then(|file| file.take(max_bytes.saturating_add(1)).read_to_end(&mut source));
    let bytes = reading.map_err(refused)? as u64;
    if bytes > max_bytes {
        return Err(too_large(bytes)); // it has grown
    }
    String::from_utf8(source).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        format!("{}:{line}:{column}: this is not UTF-8 text, which a policy file is", file.display())
    })
}

/// What is wrong with a tenants file.
pub(crate) fn shown_tenants_file(error: &TenantsFileError) -> String {
    match error {
        TenantsFileError::Faults(faults) => shown(faults),
        other => other.to_string(),
    }
}

fn shown(faults: &Faults) -> String {
    if std::io::stderr().is_terminal() { faults.coloured() } else { faults.to_string() }
}
