//! The terminal: takes it over, and restores it.

use std::io::{self, BufWriter, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use rustix::process::{Signal, getpid, kill_process};

/// Whether this process has taken over the terminal. It is global, because the panic hook needs it.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal. Dropping this restores it.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(); // so that the message can be read
            before(panic);
        }));
        take()?;
        let output = BufWriter::with_capacity(64 << 10, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(output)).inspect_err(|_| give_back())?;
        Ok(Self { terminal })
    }

    /// Stops the process, as Ctrl-Z does elsewhere. Returns when the process is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process(getpid(), Signal::TSTP)?;
        self.resume()
    }

    /// Takes the terminal over again: another program had it while this one was stopped.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        disable_raw_mode()?; // otherwise, enabling it again does nothing
        take()?;
        self.redraw()
    }

    /// Draws everything again with the next frame.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        // `Terminal::clear` asks the terminal for the cursor, and the answer would be read as keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

fn give_back() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}
