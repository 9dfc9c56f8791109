//! The fields of a stored properties block in place, by name. Like `properties`, it is lenient: a truncated block has
//! the fields before the cut. It converts nothing.

use super::block::{self, Field};

/// The fields of a properties block; texts are short strings, not checked to be UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PropertiesView<'a> {
    pub content_type: Option<&'a [u8]>,
    pub content_encoding: Option<&'a [u8]>,
    /// The header table without its length.
    pub headers: Option<&'a [u8]>,
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<&'a [u8]>,
    pub reply_to: Option<&'a [u8]>,
    pub expiration: Option<&'a [u8]>,
    pub message_id: Option<&'a [u8]>,
    /// Seconds since 1970-01-01 UTC.
    pub timestamp: Option<u64>,
    pub message_type: Option<&'a [u8]>,
    pub user_id: Option<&'a [u8]>,
    pub app_id: Option<&'a [u8]>,
}

impl<'a> PropertiesView<'a> {
    #[must_use]
    pub fn of(block: &'a [u8]) -> Self {
        let mut view = PropertiesView::default();
        let Ok(fields) = block::fields(block) else { return view };
        for (flag, field) in fields.map_while(Result::ok) {
            match field {
                Field::Text(text) => view.set_text(flag, text),
                Field::Table(table) => view.headers = Some(table),
                Field::Octet(octet) if flag == block::DELIVERY_MODE => view.delivery_mode = Some(octet),
                Field::Octet(octet) => view.priority = Some(octet),
                Field::Timestamp(seconds) => view.timestamp = Some(seconds),
            }
        }
        view
    }

    fn set_text(&mut self, flag: u16, text: &'a [u8]) {
        let slot = match flag {
            block::CONTENT_TYPE => &mut self.content_type,
            block::CONTENT_ENCODING => &mut self.content_encoding,
            block::CORRELATION_ID => &mut self.correlation_id,
            block::REPLY_TO => &mut self.reply_to,
            block::EXPIRATION => &mut self.expiration,
            block::MESSAGE_ID => &mut self.message_id,
            block::TYPE => &mut self.message_type,
            block::USER_ID => &mut self.user_id,
            block::APP_ID => &mut self.app_id,
            _ => return,
        };
        *slot = Some(text);
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::PropertiesView;

    #[test]
    fn fields_are_found_by_their_flags_up_to_where_a_block_breaks_off() {
        let block = [&[0x98, 0x80, 4][..], b"text", &[2, 9, 2], b"id"].concat();
        let whole = PropertiesView {
            content_type: Some(b"text"),
            delivery_mode: Some(2),
            priority: Some(9),
            message_id: Some(b"id"),
            ..PropertiesView::default()
        };

        assert_eq!(PropertiesView::of(&block), whole);
        let broken = PropertiesView::of(&block[..block.len() - 1]);
        assert_eq!(broken, PropertiesView { message_id: None, ..whole });
        assert_eq!(PropertiesView::of(b""), PropertiesView::default());
    }
}
