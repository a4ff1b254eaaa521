//! Columns that line up.

/// Rows of text under a heading. Columns whose cells are all numbers are set to the right.
#[derive(Debug, Default)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self { heading: heading.map(str::to_owned).into(), rows: Vec::new() }
    }

    /// Adds a row, which has as many cells as the heading.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn width(&self, column: usize) -> usize {
        self.lines().map(|row| row[column].chars().count()).max().unwrap_or(0)
    }

    fn is_number(&self, column: usize) -> bool {
        let numeric = |cell: &String| cell.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        !self.rows.is_empty() && self.rows.iter().all(|row| numeric(&row[column]))
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.heading).chain(&self.rows)
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = 0..self.heading.len();
        let layout: Vec<_> = columns.map(|column| (self.width(column), self.is_number(column))).collect();
        let lines: Vec<String> = self
            .lines()
            .map(|row| {
                let cells = row.iter().zip(&layout).map(|(cell, &(width, right))| {
                    if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                });
                cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
            })
            .collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Lines of `name  value` with the values under each other.
pub fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let facts: Vec<_> = facts.into_iter().collect();
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = facts.iter().map(|(name, value)| format!("  {name:<width$}  {value}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_set_left_and_numbers_right() {
        let mut table = Table::new(["name", "size"]);
        table.row(["a".into(), "5".into()]);
        table.row(["longer".into(), "1,000".into()]);
        assert_eq!(table.to_string(), "name     size\na           5\nlonger  1,000");
    }
}
