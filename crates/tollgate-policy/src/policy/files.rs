//! The files that a policy names, and whether they can be used.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

use super::{Policy, StoreSettings, tenants_file};

/// A file that the policy names and that `tollgate serve` would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusableFile {
    /// The key of the policy file that names it, such as `tls.cert_file`.
    pub key: &'static str,
    /// Its path. Values that came from the environment are hidden.
    pub path: String,
    /// Why it cannot be used, and what would be right.
    pub error: String,
}

/// `tls.cert_file: /etc/tls/cert.pem: No such file or directory (os error 2)`.
impl fmt::Display for UnusableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.key, self.path, self.error)
    }
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The token of admin calls, without white space around it.
    Token,
    /// A password of our own clients, without the line break at its end.
    Password,
    /// A password that another server expects: any text.
    PasswordElsewhere,
    Certificates,
    PrivateKey,
    /// It is appended to, and created where it is missing.
    Record,
    /// Tenants. [`Policy::read_tenants_file`] finds what is wrong with its lines.
    Tenants,
}

/// The most bytes of a file that are looked at: chains of certificates take a few kilobytes.
const MOST_BYTES: u64 = 1 << 20;

impl Policy {
    /// The files that the policy names and that cannot be used, as far as can be known without a listener or a connection:
    /// a file is missing, is a directory, cannot be opened, is empty, or has no PEM item of its kind.
    pub fn unusable_files(&self) -> Vec<UnusableFile> {
        let unusable = |(key, path, purpose): (&'static str, &str, Purpose)| {
            let error = look_at(Path::new(path), purpose).err()?;
            let path = self.environment_values.hide(path).into_owned();
            Some(UnusableFile { key, path, error })
        };
        self.files().into_iter().filter_map(unusable).collect()
    }

    /// Every file that the policy names, with the key that names it.
    fn files<'p>(&'p self) -> Vec<(&'static str, &'p str, Purpose)> {
        let mut files = Vec::new();
        let mut add = |key: &'static str, path: Option<&'p String>, purpose: Purpose| {
            files.extend(path.map(|path| (key, path.as_str(), purpose)));
        };
        add("tls.cert_file", self.tls.as_ref().map(|tls| &tls.cert_file), Purpose::Certificates);
        add("tls.key_file", self.tls.as_ref().map(|tls| &tls.key_file), Purpose::PrivateKey);
        add("resp_password_file", self.resp_password_file.as_ref(), Purpose::Password);
        add("admin.token_file", self.admin_token_file.as_ref(), Purpose::Token);
        add("tenants_file", self.tenants_file.as_ref(), Purpose::Tenants);
        add("record.path", self.record.as_ref().map(|record| &record.path), Purpose::Record);
        if let StoreSettings::Redis(redis) = &self.store {
            let (password, tls) = (redis.password_file.as_ref(), redis.tls.as_ref());
            add("store.redis.password_file", password, Purpose::PasswordElsewhere);
            let sentinel = redis.sentinel.as_ref().and_then(|sentinel| sentinel.password_file.as_ref());
            add("store.redis.sentinel.password_file", sentinel, Purpose::PasswordElsewhere);
            let ca_file = tls.and_then(|tls| tls.ca_file.as_ref());
            add("store.redis.tls.ca_file", ca_file, Purpose::Certificates);
            let cert_file = tls.and_then(|tls| tls.cert_file.as_ref());
            add("store.redis.tls.cert_file", cert_file, Purpose::Certificates);
            let key_file = tls.and_then(|tls| tls.key_file.as_ref());
            add("store.redis.tls.key_file", key_file, Purpose::PrivateKey);
        }
        files
    }
}

fn look_at(path: &Path, purpose: Purpose) -> Result<(), String> {
    let refused = |error: io::Error| error.to_string();
    if purpose == Purpose::Tenants {
        return tenants_file::open(path).map(|_| ());
    }
    let metadata = match fs::metadata(path) {
        Err(error) if purpose == Purpose::Record && error.kind() == io::ErrorKind::NotFound => {
            return require_directory(path);
        }
        metadata => metadata.map_err(refused)?,
    };
    if metadata.is_dir() {
        return Err("this is a directory; name a file".to_owned());
    }
    // Opening a pipe may wait for its other end, and reading from it takes its content away.
    if !metadata.is_file() {
        return Ok(());
    }
    if purpose == Purpose::Record {
        return OpenOptions::new().append(true).open(path).map(|_| ()).map_err(refused);
    }
    let mut content = Vec::new();
    File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut content)).map_err(refused)?;
    require_content(&content, purpose)
}

/// Requires the directory of a file that is yet to be created.
fn require_directory(path: &Path) -> Result<(), String> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err("its parent is not a directory".to_owned()),
        Err(error) => Err(format!("its directory cannot be used: {error}")),
    }
}

fn require_content(content: &[u8], purpose: Purpose) -> Result<(), String> {
    let has = |text: &str| content.windows(text.len()).any(|part| part == text.as_bytes());
    match purpose {
        Purpose::Token if content.trim_ascii().is_empty() => {
            Err("the file is empty; write a token of your choice into it".to_owned())
        }
        Purpose::Password if matches!(content, b"" | b"\n" | b"\r\n") => {
            Err("the file is empty; write a password of your choice into it".to_owned())
        }
        Purpose::PasswordElsewhere
            if std::str::from_utf8(content).is_err_and(|e| e.error_len().is_some()) =>
        {
            Err("the file is not UTF-8 text".to_owned())
        }
        Purpose::Certificates if !has("-----BEGIN CERTIFICATE-----") => {
            Err("the file has no certificate; it needs PEM text with `-----BEGIN CERTIFICATE-----`"
                .to_owned())
        }
        Purpose::PrivateKey if !has("PRIVATE KEY-----") => {
            Err("the file has no private key; it needs PEM text with `-----BEGIN PRIVATE KEY-----`"
                .to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
