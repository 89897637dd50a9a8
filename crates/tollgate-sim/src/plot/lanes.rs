//! Where the words go that are not at an axis: the names of marks above the plot, in lanes, and the
//! legend, in rows. None is placed over another, nor over another's line.

use super::text::{fitted, width};

/// A word that was placed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    pub(super) text: String,
    /// Its left end.
    pub(super) left: f64,
    /// Its right end.
    pub(super) right: f64,
    /// From the top.
    pub(super) lane: usize,
}

/// Places a word for each of these x, right or left of it, in the first lane in which neither word
/// nor line meets another; none where there is no such lane. A line goes down from its word's lane.
pub(super) fn lanes(words: &[(f64, &str)], left: f64, right: f64) -> Vec<Option<Placed>> {
    let mut order: Vec<usize> = (0..words.len()).collect();
    order.sort_by(|a, b| words[*a].0.total_cmp(&words[*b].0));
    let mut placed: Vec<Option<Placed>> = vec![None; words.len()];
    for index in order {
        let (x, text) = words[index];
        let text = fitted(text, (right - left) * 0.6);
        let wide = width(&text) + 2.0 * GAP;
        let cut = fitted(&text, right - x - GAP);
        let cut_wide = width(&cut) + 2.0 * GAP;
        let sides = [(x, x + wide, text.clone()), (x - wide, x, text), (x, x + cut_wide, cut)];
        let fits = |(begin, end, text): &(f64, f64, String)| {
            let says = text.chars().count() >= CHARACTERS_MIN || *text == words[index].1;
            says && *begin >= left && *end <= right + GAP
        };
        let sides = sides.into_iter().filter(fits);
        let free = sides.flat_map(|side| (0..LANES_MAX).map(move |lane| (side.clone(), lane)));
        let others = || words.iter().zip(&placed).filter_map(|((x, _), p)| Some((*x, p.as_ref()?)));
        let place = free.into_iter().find(|((begin, end, _), lane)| {
            others().all(|(other_x, other)| {
                let meets = other.left < *end && *begin < other.right;
                let crossed = other.lane > *lane && other.left < x && x < other.right;
                let crosses = other.lane < *lane && *begin < other_x && other_x < *end;
                !(meets && other.lane == *lane || crossed || crosses)
            })
        });
        placed[index] = place.map(|((left, right, text), lane)| Placed { text, left, right, lane });
    }
    placed
}

/// Places names one after the other, in as many rows as they need, each with `before` for its
/// sample.
pub(super) fn rows(names: &[&str], before: f64, left: f64, right: f64) -> Vec<Placed> {
    let (mut at, mut lane) = (left, 0);
    let mut placed = Vec::new();
    for name in names {
        let text = fitted(name, right - left - before);
        let wide = before + width(&text);
        if at + wide > right && at > left {
            (at, lane) = (left, lane + 1);
        }
        placed.push(Placed { text, left: at, right: at + wide, lane });
        at += wide + 3.0 * GAP;
    }
    placed
}

/// Between a word and what is beside it.
pub(super) const GAP: f64 = 5.0;
const LANES_MAX: usize = 5;
/// A word that is cut to fewer says nothing.
const CHARACTERS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes_of(words: &[(f64, &str)]) -> Vec<Option<usize>> {
        let placed = lanes(words, 0.0, 700.0);
        placed.iter().map(|placed| placed.as_ref().map(|placed| placed.lane)).collect()
    }

    #[test]
    fn words_that_would_meet_go_below_and_no_line_crosses_a_word() {
        let text = "owner killed"; // Some 90 pixels wide.
        assert_eq!(lanes_of(&[(0.0, text), (300.0, text)]), [Some(0), Some(0)]);
        assert_eq!(lanes_of(&[(0.0, text), (50.0, text)]), [Some(0), Some(1)]);
        // The third has room in lane 0, but its line would go through the second's word.
        assert_eq!(lanes_of(&[(0.0, text), (50.0, text), (120.0, text)])[2], Some(2));
        // The order in which they are given does not matter.
        assert_eq!(lanes_of(&[(50.0, text), (0.0, text)]), [Some(1), Some(0)]);
    }

    #[test]
    fn at_the_right_end_a_word_is_left_of_its_line() {
        let placed = lanes(&[(690.0, "owner killed")], 0.0, 700.0).remove(0).expect("a place");
        assert!(placed.right == 690.0 && placed.left > 500.0, "{placed:?}");
    }

    #[test]
    fn a_word_with_room_at_neither_side_is_cut() {
        let words = [(250.0, "owner killed"), (400.0, "a partition of some workers")];
        let placed = lanes(&words, 200.0, 500.0).remove(1).expect("a place");
        assert!(placed.left == 400.0 && placed.right <= 505.0, "{placed:?}");
        assert!(placed.text.starts_with("a part") && placed.text.ends_with('\u{2026}'));
    }

    #[test]
    fn words_for_which_there_is_no_lane_are_left_out() {
        let all = lanes_of(&[(10.0, "one and the same place"); 30]);
        assert_eq!(all.iter().flatten().count(), 5);
    }

    #[test]
    fn a_legend_goes_on_in_the_next_row() {
        let placed = rows(&["one", "two", "a name that is long"], 30.0, 10.0, 200.0);
        assert_eq!(placed.iter().map(|p| p.lane).collect::<Vec<_>>(), [0, 0, 1]);
        assert!(placed[1].left > placed[0].right && placed[2].left == 10.0);
        let long = rows(&["a name that is much too long for where it is"], 30.0, 0.0, 100.0);
        assert!(long[0].right <= 100.0 && long[0].text.ends_with('\u{2026}'));
    }
}
