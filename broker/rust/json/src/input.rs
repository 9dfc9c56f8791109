//! A body on its way through the columns, with a limit for what it may become.

use jiter::Jiter;

use crate::fault::Fault;

/// The values of one body's arrays and maps, nulls included: a null of two bytes is a whole row of an array of structs.
const CELLS_MAX: usize = 1 << 24;

pub(crate) struct Input<'j> {
    pub json: Jiter<'j>,
    cells_left: usize,
}

impl<'j> Input<'j> {
    pub fn new(json: Jiter<'j>) -> Input<'j> {
        Input { json, cells_left: CELLS_MAX }
    }

    /// Counts an item of an array or a map before it is added.
    pub fn spend(&mut self, cells: usize) -> Result<(), Fault> {
        let left = self.cells_left.checked_sub(cells);
        self.cells_left = left.ok_or_else(|| Fault::new(format!("more than {CELLS_MAX} values in arrays and maps")))?;
        Ok(())
    }
}
