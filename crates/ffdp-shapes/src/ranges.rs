//! Products of clusters: which clusters of rows meet which clusters of columns.

use std::ops::Range;

/// Rows and columns in clusters that lie one after the other, and the pairs of clusters that count; all other pairs are
/// left out of a reduction (block-sparse products).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ranges {
    rows: Vec<usize>,
    columns: Vec<usize>,
    kept: Vec<Vec<usize>>,
}

impl Ranges {
    /// Cluster `c` of the rows is `rows[c]..rows[c + 1]`, likewise of the columns; it meets the column clusters
    /// `kept[c]`.
    ///
    /// # Panics
    /// If the bounds do not start at 0 or fall, or `kept` does not fit them.
    pub fn new(rows: Vec<usize>, columns: Vec<usize>, mut kept: Vec<Vec<usize>>) -> Self {
        for (name, bounds) in [("rows", &rows), ("columns", &columns)] {
            let right = bounds.first() == Some(&0) && bounds.is_sorted();
            assert!(right, "ranges: bounds of {name} must start at 0 and not fall, got {bounds:?}");
        }
        let (clusters, others) = (rows.len() - 1, columns.len() - 1);
        let lists = kept.len();
        assert!(lists == clusters, "ranges: {lists} lists for {clusters} clusters of rows");
        for (cluster, list) in kept.iter_mut().enumerate() {
            list.sort_unstable();
            list.dedup();
            if let Some(last) = list.last().filter(|last| **last >= others) {
                panic!("ranges: cluster {cluster} meets {last} of {others} clusters of columns");
            }
        }
        Self { rows, columns, kept }
    }

    /// Batches of `rows` rows and `columns` columns each: a batch meets its own columns.
    pub fn batches(count: usize, rows: usize, columns: usize) -> Self {
        let bounds = |size: usize| (0..=count).map(|k| k * size).collect();
        Self::new(bounds(rows), bounds(columns), (0..count).map(|k| vec![k]).collect())
    }

    /// Rows for columns and columns for rows.
    pub fn transposed(&self) -> Self {
        let mut kept = vec![Vec::new(); self.columns.len() - 1];
        for (row, list) in self.kept.iter().enumerate() {
            list.iter().for_each(|column| kept[*column].push(row));
        }
        Self { rows: self.columns.clone(), columns: self.rows.clone(), kept }
    }

    /// Numbers of rows and columns.
    pub fn size(&self) -> [usize; 2] {
        [&self.rows, &self.columns].map(|bounds| *bounds.last().expect("starts with 0"))
    }

    /// Pairs of a row and a column that are kept.
    pub fn pairs(&self) -> usize {
        let length = |bounds: &[usize], cluster: usize| bounds[cluster + 1] - bounds[cluster];
        let columns =
            |list: &Vec<usize>| list.iter().map(|&c| length(&self.columns, c)).sum::<usize>();
        self.kept.iter().enumerate().map(|(r, list)| length(&self.rows, r) * columns(list)).sum()
    }

    /// The clusters of columns that a cluster of rows meets.
    pub(crate) fn kept(&self, cluster: usize) -> &[usize] {
        &self.kept[cluster]
    }

    /// The rows of every cluster, and the columns that it meets, neighbours joined.
    pub fn clusters(&self) -> impl Iterator<Item = (Range<usize>, Vec<Range<usize>>)> + '_ {
        self.kept.iter().enumerate().map(|(cluster, list)| {
            let mut columns: Vec<Range<usize>> = Vec::new();
            for &c in list {
                let (start, end) = (self.columns[c], self.columns[c + 1]);
                match columns.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ if start < end => columns.push(start..end),
                    _ => {}
                }
            }
            (self.rows[cluster]..self.rows[cluster + 1], columns)
        })
    }
}
