//! Writing HTML.

use std::fmt::Write;

use crate::units::Units;

/// Most rows of a table. What is left out is said, and JSON has it.
pub const MOST_ROWS: usize = 500;

/// A page that is being written.
#[derive(Default)]
pub struct Html(String);

/// A cell of a table.
pub enum Cell {
    /// Text, escaped already.
    Text(String),
    /// Text that is short and a number.
    Plain(String),
    Bytes(u64),
    Count(u64),
    /// A picture of the two numbers, against the greatest of the table.
    Bar {
        alone: u64,
        all: u64,
        of: u64,
    },
}

impl Cell {
    /// A name or sentence, which may have any characters.
    pub fn text(text: &str) -> Self {
        Self::Text(format!("<bdi>{}</bdi>", escape(text)))
    }
}

impl Html {
    pub fn into_text(self) -> String {
        self.0
    }

    /// Adds HTML.
    pub fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Adds a paragraph of text.
    pub fn paragraph(&mut self, text: &str) {
        self.raw(&format!("<p>{}</p>\n", escape(text)));
    }

    pub fn begin_section(&mut self, id: &str, title: &str) {
        self.raw(&format!("<section id=\"{id}\">\n<h2>{}</h2>\n", escape(title)));
    }

    pub fn end_section(&mut self) {
        self.raw("</section>\n");
    }

    /// Adds a number with a name and a remark.
    pub fn card(&mut self, name: &str, bytes: u64, remark: &str) {
        let (name, remark) = (escape(name), escape(remark));
        self.raw(&format!(
            "<div><dt>{name}</dt><dd><b title=\"{} bytes\">{}</b> {remark}</dd></div>\n",
            count(bytes),
            size(bytes)
        ));
    }

    /// Adds a table. A column without a title has pictures, which the other columns say in numbers.
    pub fn table(
        &mut self,
        caption: &str,
        heads: &[&str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) {
        self.raw("<div class=\"table\" tabindex=\"0\" role=\"region\"");
        self.raw(&format!(
            " aria-label=\"{0}\">\n<table>\n<caption>{0}</caption>\n",
            escape(caption)
        ));
        let rows: Vec<Vec<Cell>> = rows.into_iter().collect();
        let is_text =
            |column| rows.first().is_some_and(|row| matches!(row.get(column), Some(Cell::Text(_))));
        self.raw("<thead><tr>");
        for (column, head) in heads.iter().enumerate() {
            match *head {
                "" => self.raw("<td></td>"),
                head => {
                    let class = if is_text(column) { " class=\"text\"" } else { "" };
                    self.raw(&format!("<th scope=\"col\"{class}>{}</th>", escape(head)));
                }
            }
        }
        self.raw("</tr></thead>\n<tbody>\n");
        if rows.is_empty() {
            self.raw(&format!("<tr><td colspan=\"{}\">none</td></tr>\n", heads.len()));
        }
        for row in &rows {
            self.raw("<tr>");
            for cell in row {
                self.cell(cell);
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody>\n</table>\n</div>\n");
    }

    fn cell(&mut self, cell: &Cell) {
        match cell {
            Cell::Text(text) => self.raw(&format!("<td class=\"text\">{text}</td>")),
            Cell::Plain(text) => self.raw(&format!("<td>{}</td>", escape(text))),
            Cell::Count(number) => self.raw(&format!("<td>{}</td>", count(*number))),
            Cell::Bytes(bytes) => {
                let (exact, shown) = (count(*bytes), size(*bytes));
                self.raw(&format!("<td title=\"{exact} bytes\">{shown}</td>"));
            }
            Cell::Bar { alone, all, of } => {
                let percent = |part: u64| 100.0 * part as f64 / (*of).max(1) as f64;
                let (all, alone) = (percent(*all), percent(*alone));
                self.raw(&format!(
                    "<td class=\"bar\"><div style=\"width:{all:.1}%\"></div>\
                     <div style=\"width:{alone:.1}%\"></div></td>"
                ));
            }
        }
    }

    /// Says how many of `all` rows a table leaves out after `most`.
    pub fn left_out(&mut self, all: usize, most: usize, what: &str) {
        if let Some(more @ 1..) = all.checked_sub(most) {
            let more = count(more as u64);
            self.paragraph(&format!("And {more} {what}, which --format json lists."));
        }
    }
}

/// Text for HTML, in elements and attributes.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(character),
        }
    }
    html
}

/// Bytes in the unit that suits them.
pub fn size(bytes: u64) -> String {
    if bytes == 0 { "0".into() } else { Units::default().show(bytes) }
}

/// A number in groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        // Writing to a text does not fail.
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(escape("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
    }

    #[test]
    fn digits_come_in_threes() {
        assert_eq!(count(0), "0");
        assert_eq!(count(123), "123");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
