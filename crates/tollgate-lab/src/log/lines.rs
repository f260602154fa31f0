//! The lines of a file, plain or compressed, however long they are.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use crate::LabError;

/// A longer line is none of a log: it is passed over, and counted as malformed.
pub(crate) const LONGEST_LINE: usize = 1 << 20;

/// What is read at once.
const PIECE: usize = 256 << 10;

/// The lines of a file.
pub(crate) struct Lines {
    file: PathBuf,
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    from: usize, // the next line begins here
    to: usize,   // what has been read ends here
    number: u64, // of lines so far
    is_over: bool,
}

/// A line, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'l> {
    Text(&'l [u8]),
    TooLong,
}

/// A file that counts what has been read of it: of a compressed one, compressed.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Lines {
    /// Opens a file. What is compressed by gzip is told by its first bytes, not by its name.
    pub(crate) fn open(file: &Path, read: &Arc<AtomicU64>) -> Result<Self, LabError> {
        let refused = |error| LabError::Read { file: file.to_owned(), error };
        let mut plain = File::open(file).map_err(refused)?;
        let mut magic = [0; 2];
        let mut known = 0;
        while known < 2 {
            match plain.read(&mut magic[known..]).map_err(refused)? {
                0 => break,
                more => known += more,
            }
        }
        let begun = std::io::Cursor::new(magic[..known].to_vec());
        let plain = begun.chain(Counted { file: plain, read: Arc::clone(read) });
        let source: Box<dyn Read> = match magic {
            [0x1f, 0x8b] => Box::new(MultiGzDecoder::new(plain)),
            _ => Box::new(plain),
        };
        Ok(Self::new(file, source))
    }

    /// Lines that are in memory. Errors name `file`, which is not opened.
    pub(crate) fn of_text(file: &Path, text: String) -> Self {
        Self::new(file, Box::new(std::io::Cursor::new(text.into_bytes())))
    }

    fn new(file: &Path, source: Box<dyn Read>) -> Self {
        Self { file: file.to_owned(), source, buffer: Vec::new(), from: 0, to: 0, number: 0, is_over: false }
    }

    /// The number of the line that was told last, from 1.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// What comes, without taking it: so many bytes at least, or all there is.
    pub(crate) fn peek(&mut self, bytes: usize) -> Result<&[u8], LabError> {
        while self.to - self.from < bytes && !self.is_over {
            self.fill()?;
        }
        if self.number == 0 && self.buffer[self.from..self.to].starts_with(b"\xef\xbb\xbf") {
            self.from += 3; // what some editors begin files with
        }
        Ok(&self.buffer[self.from..self.to])
    }

    /// The next line, and its number from 1; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Line<'_>)>, LabError> {
        let mut searched = 0;
        let mut is_too_long = false;
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.from + searched..self.to]);
            if let Some(place) = found {
                let (begin, end) = (self.from, self.from + searched + place);
                self.from = end + 1;
                self.number += 1;
                let line = self.buffer[begin..end].strip_suffix(b"\r").unwrap_or(&self.buffer[begin..end]);
                let is_too_long = is_too_long || line.len() > LONGEST_LINE;
                return Ok(Some((self.number, if is_too_long { Line::TooLong } else { Line::Text(line) })));
            }
            if self.is_over {
                let (begin, end) = (self.from, self.to);
                self.from = end;
                if begin == end && !is_too_long {
                    return Ok(None);
                }
                self.number += 1;
                let line = Line::Text(&self.buffer[begin..end]);
                return Ok(Some((self.number, if is_too_long { Line::TooLong } else { line })));
            }
            if self.to - self.from > LONGEST_LINE {
                // Nothing of it is of use, so that nothing of it is kept.
                is_too_long = true;
                self.from = self.to;
            }
            searched = self.to - self.from;
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), LabError> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        if self.buffer.len() < self.to + PIECE {
            self.buffer.resize(self.to + PIECE, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(read) => {
                    self.is_over = read == 0;
                    self.to += read;
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(LabError::Broken { file: self.file.clone(), line: self.number + 1, error });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
