//! The routes of a topic exchange: a trie of words, with `*` for exactly one word and `#` for any number of them.
//!
//! A key is matched word by word against the set of nodes that the words so far lead to. Each node is in that set at most once,
//! so the cost is bounded by words times nodes, whatever the patterns. A node stays only while a route goes through it.
//! A copy of the routes shares the nodes with it, page by page, until one of them is changed.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::shared_map::SharedMap;
use super::targets::{Target, Targets};

const ONE_WORD: &[u8] = b"*";
const ANY_WORDS: &[u8] = b"#";
const ROOT: u32 = 0;
/// Nodes of a page.
const PAGE: usize = 64;

/// Buffers for matching, reused from message to message.
#[derive(Debug, Default)]
pub(super) struct TopicScratch {
    /// Nodes reached by the words so far.
    active: Vec<u32>,
    following: Vec<u32>,
    /// `#` nodes reached by the words so far: they match any word and stay until the end.
    open: Vec<u32>,
    opened: FxHashSet<u32>,
}

/// Invariant: a node other than the root has targets or children.
#[derive(Clone, Debug)]
pub(super) struct TopicRoutes {
    /// All pages but the last are full.
    pages: Vec<Arc<Vec<Node>>>,
    vacant: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    words: SharedMap<Box<[u8]>, u32>,
    one_word: Option<u32>,
    any_words: Option<u32>,
    targets: Targets,
}

impl Node {
    fn child(&self, word: &[u8]) -> Option<u32> {
        match word {
            ONE_WORD => self.one_word,
            ANY_WORDS => self.any_words,
            _ => self.words.get(word).copied(),
        }
    }

    fn is_unused(&self) -> bool {
        self.targets.is_empty() && self.words.is_empty() && self.one_word.is_none() && self.any_words.is_none()
    }
}

impl Default for TopicRoutes {
    fn default() -> Self {
        TopicRoutes { pages: vec![Arc::new(vec![Node::default()])], vacant: Vec::new() }
    }
}

impl TopicRoutes {
    pub(super) fn add(&mut self, pattern: &[u8], target: Target) {
        let mut place = ROOT;
        for word in words(pattern) {
            place = match self.node(place).and_then(|node| node.child(word)) {
                Some(child) => child,
                None => self.add_child(place, word),
            };
        }
        if let Some(node) = self.node_mut(place) {
            node.targets.add(target);
        }
    }

    pub(super) fn remove(&mut self, pattern: &[u8], target: Target) {
        let mut path = Vec::new();
        let mut place = ROOT;
        for word in words(pattern) {
            path.push((place, word));
            let Some(child) = self.node(place).and_then(|node| node.child(word)) else { return };
            place = child;
        }
        if let Some(node) = self.node_mut(place) {
            node.targets.remove(target);
        }
        while let Some((parent, word)) = path.pop() {
            if !self.node(place).is_some_and(Node::is_unused) {
                return;
            }
            self.remove_child(parent, word);
            self.vacant.push(place);
            place = parent;
        }
    }

    pub(super) fn find<'a>(&'a self, key: &[u8], scratch: &mut TopicScratch, mut matched: impl FnMut(&'a Targets)) {
        let TopicScratch { active, following, open, opened } = scratch;
        active.clear();
        open.clear();
        opened.clear();
        active.push(ROOT);
        self.open_from(ROOT, open, opened);
        for word in words(key) {
            following.clear();
            for &place in active.iter() {
                self.step(place, word, following);
            }
            for &place in open.iter() {
                self.step(place, word, following);
            }
            for &place in following.iter() {
                self.open_from(place, open, opened);
            }
            std::mem::swap(active, following);
        }
        for targets in active.iter().chain(open.iter()).filter_map(|&place| Some(&self.node(place)?.targets)) {
            if !targets.is_empty() {
                matched(targets);
            }
        }
    }

    /// Adds the nodes that one word leads to from `place`. Nodes have one parent, so none is added twice.
    fn step(&self, place: u32, word: &[u8], following: &mut Vec<u32>) {
        let Some(node) = self.node(place) else { return };
        following.extend(node.words.get(word));
        following.extend(node.one_word);
    }

    /// Opens the `#` nodes right below a node: they match zero words as well.
    fn open_from(&self, place: u32, open: &mut Vec<u32>, opened: &mut FxHashSet<u32>) {
        let mut next = self.node(place).and_then(|node| node.any_words);
        while let Some(place) = next.filter(|&place| opened.insert(place)) {
            open.push(place);
            next = self.node(place).and_then(|node| node.any_words);
        }
    }

    fn add_child(&mut self, parent: u32, word: &[u8]) -> u32 {
        let child = self.vacant.pop().unwrap_or_else(|| self.push_node());
        if let Some(node) = self.node_mut(parent) {
            match word {
                ONE_WORD => node.one_word = Some(child),
                ANY_WORDS => node.any_words = Some(child),
                _ => node.words.insert(word.into(), child),
            }
        }
        child
    }

    fn push_node(&mut self) -> u32 {
        if self.pages.last().is_none_or(|page| page.len() >= PAGE) {
            self.pages.push(Arc::default());
        }
        let before = (self.pages.len() - 1) * PAGE;
        let page = self.pages.last_mut().map(Arc::make_mut);
        let place = page.map_or(before, |page| {
            page.push(Node::default());
            before + page.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    fn remove_child(&mut self, parent: u32, word: &[u8]) {
        if let Some(node) = self.node_mut(parent) {
            match word {
                ONE_WORD => node.one_word = None,
                ANY_WORDS => node.any_words = None,
                _ => drop(node.words.remove(word)),
            }
        }
    }

    fn node(&self, place: u32) -> Option<&Node> {
        let place = place as usize;
        self.pages.get(place / PAGE)?.get(place % PAGE)
    }

    fn node_mut(&mut self, place: u32) -> Option<&mut Node> {
        let place = place as usize;
        Arc::make_mut(self.pages.get_mut(place / PAGE)?).get_mut(place % PAGE)
    }
}

fn words(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|&byte| byte == b'.')
}
