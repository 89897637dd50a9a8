//! Fewer points that look the same: of all that fall on one column of pixels the first, the lowest,
//! the highest and the last are kept.
//!
//! From Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation" (VLDB 2014): a
//! line through these is the line through all, pixel by pixel.

/// Places in the order of x, cut into runs at gaps; at most 4 points a column.
///
/// A gap is a place that is no number. One that lies within a column does not show.
pub(super) fn thinned(places: impl Iterator<Item = (f64, f64)>) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    let mut column: Option<Column> = None;
    let mut gap = false;
    for place in places {
        if !(place.0.is_finite() && place.1.is_finite()) {
            gap = true;
            continue;
        }
        if let Some(column) = &mut column
            && column.number == number(place)
        {
            column.add(place);
        } else {
            if let Some(full) = column.replace(Column::new(place)) {
                full.end(&mut runs);
            }
            if gap && !runs.last().is_some_and(Vec::is_empty) {
                runs.push(Vec::new());
            }
        }
        gap = false;
    }
    if let Some(last) = column {
        last.end(&mut runs);
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// The points on one column, of which four are kept, each with its number among them.
struct Column {
    number: i64,
    count: usize,
    first: (f64, f64),
    low: (usize, (f64, f64)),
    high: (usize, (f64, f64)),
    last: (f64, f64),
}

impl Column {
    fn new(place: (f64, f64)) -> Self {
        let (first, last, low, high) = (place, place, (0, place), (0, place));
        Self { number: number(place), count: 1, first, low, high, last }
    }

    fn add(&mut self, place: (f64, f64)) {
        if place.1 < self.low.1.1 {
            self.low = (self.count, place);
        }
        if place.1 > self.high.1.1 {
            self.high = (self.count, place);
        }
        self.last = place;
        self.count += 1;
    }

    fn end(self, runs: &mut [Vec<(f64, f64)>]) {
        let Some(run) = runs.last_mut() else { return };
        let mut kept = [(0, self.first), self.low, self.high, (self.count - 1, self.last)];
        kept.sort_by_key(|(index, _)| *index);
        let mut before = None;
        for (index, place) in kept {
            if before != Some(index) {
                run.push(place);
            }
            before = Some(index);
        }
    }
}

fn number(place: (f64, f64)) -> i64 {
    place.0.floor() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay_as_they_are() {
        let points = vec![(0.0, 1.0), (0.5, 2.0), (5.0, 0.0)];
        assert_eq!(thinned(points.clone().into_iter()), [points]);
        assert!(thinned(std::iter::empty()).is_empty());
    }

    #[test]
    fn a_column_keeps_its_first_lowest_highest_and_last_in_their_order() {
        let heights = [5.0, 6.0, 9.0, 5.0, 1.0, 2.0, 4.0];
        let places = heights.iter().enumerate().map(|(index, y)| (index as f64 / 10.0, *y));
        assert_eq!(thinned(places), [vec![(0.0, 5.0), (0.2, 9.0), (0.4, 1.0), (0.6, 4.0)]]);
    }

    #[test]
    fn a_million_points_become_four_a_column_and_keep_every_peak() {
        let peak = |index: u32| if index == 777_777 { 100.0 } else { f64::from(index % 7) };
        let places = (0..1_000_000).map(|index| (f64::from(index) / 2_000.0, peak(index)));
        let runs = thinned(places);
        assert_eq!(runs.len(), 1);
        assert!(runs[0].len() <= 4 * 500, "{}", runs[0].len());
        assert!(runs[0].iter().any(|(_, y)| *y == 100.0));
    }

    #[test]
    fn a_gap_between_columns_ends_a_run_and_one_within_a_column_does_not() {
        let nan = f64::NAN;
        let gap = thinned([(0.0, 1.0), (1.0, nan), (2.0, 1.0)].into_iter());
        assert_eq!(gap, [vec![(0.0, 1.0)], vec![(2.0, 1.0)]]);
        let within = thinned([(0.0, 1.0), (0.1, nan), (0.2, 1.0), (1.0, 1.0)].into_iter());
        assert_eq!(within.len(), 1);
        let every =
            (0..1_000_000).map(|i| (f64::from(i) / 1e4, if i % 2 == 0 { 1.0 } else { nan }));
        assert!(thinned(every).len() <= 101);
    }
}
