//! Lines of the engine for the broker's log. Python fetches them periodically.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Above this nothing is reading them: the oldest are dropped.
const KEPT: usize = 256;

/// A line for the broker's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether an operator should act.
    pub is_warning: bool,
    pub text: String,
}

/// Lines that were not fetched yet.
#[derive(Debug, Default)]
pub struct Notices {
    waiting: Mutex<VecDeque<Notice>>,
}

impl Notices {
    pub fn warn(&self, text: String) {
        self.add(Notice { is_warning: true, text });
    }

    pub fn tell(&self, text: String) {
        self.add(Notice { is_warning: false, text });
    }

    /// All lines since the last call.
    pub fn take(&self) -> Vec<Notice> {
        self.waiting.lock().map(|mut waiting| waiting.drain(..).collect()).unwrap_or_default()
    }

    fn add(&self, notice: Notice) {
        if let Ok(mut waiting) = self.waiting.lock() {
            if waiting.len() >= KEPT {
                waiting.pop_front();
            }
            waiting.push_back(notice);
        }
    }
}
