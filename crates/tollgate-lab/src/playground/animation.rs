//! Recorded runs as animated SVG: a lane per rule with its decisions, what the mechanism holds, and what the backend receives.
//!
//! The picture is complete without the animation. A clip that grows from left to right uncovers it, and stops for a moment where there is
//! most to see. Nothing moves for readers who ask for reduced motion. Colours and texts are of one lightness, so that they can be read on
//! light and on dark pages.

mod clock;
mod lane;

use std::fmt::Write as _;

use self::clock::Clock;
use self::lane::Lane;
use super::{PlaygroundReply, PlaygroundRequest, Story, play};
use crate::plot::text;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 64.0; // where the time begins
const RIGHT: f64 = 16.0;
const MARGIN: f64 = 12.0;
const HEAD: f64 = 80.0;
const FOOT: f64 = 30.0;

const INK: &str = "#6a7a92";
const ALLOWED: &str = "#2e75e8";
const DENIED: &str = "#d05011";
const DELAYED: &str = "#9c5ad6";

/// The half of the size of a symbol.
const RADIUS: f64 = 2.2;

/// A story as an animated SVG. It is the same in every run.
///
/// ```
/// use tollgate_lab::playground::{animation, stories};
///
/// let svg = animation(&stories()[0]);
/// assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
/// ```
///
/// # Panics
///
/// If the request of the story is refused. The requests of [`stories`](super::stories) never are.
pub fn animation(story: &Story) -> String {
    let request: PlaygroundRequest =
        serde_json::from_value(story.request.clone()).expect("the request of a story can be read");
    let reply = play(&request, &mut || true).expect("the request of a story is within the bounds");
    Drawing { story, reply: &reply, clock: Clock::new(reply.duration, story.moment) }.draw()
}

/// All of it.
struct Drawing<'d> {
    story: &'d Story,
    reply: &'d PlaygroundReply,
    clock: Clock,
}

impl Drawing<'_> {
    fn draw(&self) -> String {
        let busiest = self
            .reply
            .rules
            .iter()
            .map(|rule| (rule.most as f64).max(lane::rate_line(self.reply, rule).unwrap_or(0.0)));
        let busiest = busiest.fold(1.0, f64::max);
        let mut svg = String::new();
        let mut y = HEAD;
        for rule in &self.reply.rules {
            y = Lane { reply: self.reply, rule, clock: self.clock, busiest }.draw(&mut svg, y);
        }
        let height = y + FOOT;
        self.times(&mut svg, y + 4.0);
        format!("{}{svg}</svg>\n", self.head(height, y))
    }

    /// Everything before the lanes.
    fn head(&self, height: f64, bottom: f64) -> String {
        let (story, reply) = (self.story, self.reply);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"title desc\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"{INK}\">\n"
        );
        let finding = (story.finding)(reply);
        let _ = writeln!(svg, "<title id=\"title\">{finding}</title>");
        let _ = writeln!(svg, "<desc id=\"desc\">{} {}</desc>", story.look[0], story.look[1]);
        let sweep = self.clock.sweep("width", &[(0.0, 0.0), (reply.duration, WIDTH - LEFT - RIGHT)]);
        let _ = writeln!(
            svg,
            "<style>\
             .run{{clip-path:url(#sweep)}}\
             .n{{font-variant-numeric:tabular-nums}}\
             @media (prefers-reduced-motion:reduce){{.run{{clip-path:none}}.moves{{display:none}}}}\
             </style>\n\
             <defs>\
             <clipPath id=\"sweep\"><rect x=\"{LEFT}\" y=\"0\" width=\"{}\" height=\"{bottom}\">{sweep}</rect></clipPath>\
             <pattern id=\"over\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <rect width=\"4\" height=\"4\" fill=\"{DENIED}\" fill-opacity=\".35\"/><path d=\"M0 0v4\" stroke=\"{DENIED}\" stroke-width=\"2.4\"/></pattern>\
             </defs>",
            WIDTH - LEFT
        );
        text(&mut svg, (MARGIN, 24.0), "font-size=\"14\" font-weight=\"600\"", &finding);
        text(&mut svg, (MARGIN, 43.0), "", &self.set_up());
        self.legend(&mut svg, 64.0);
        svg
    }

    fn set_up(&self) -> String {
        let (calls, clients) = (self.reply.arrivals.client.len(), self.reply.clients.len());
        let clients = if clients == 1 { "one client".to_owned() } else { format!("{clients} clients") };
        format!("{}: {calls} calls of {clients}", self.story.title)
    }

    fn legend(&self, svg: &mut String, y: f64) {
        let delayed = self.reply.rules.iter().any(|rule| rule.delayed > 0);
        let symbols = [
            (true, lane::Symbol::Allowed, "allowed"),
            (true, lane::Symbol::Denied, "denied"),
            (delayed, lane::Symbol::Delayed, "delayed"),
        ];
        let mut x = MARGIN + 4.0;
        for (_, symbol, words) in symbols.into_iter().filter(|(is_there, ..)| *is_there) {
            symbol.draw(svg, &[(x, y - 4.0)], 3.4);
            text(svg, (x + 9.0, y), "", words);
            x += 24.0 + 6.4 * words.len() as f64;
        }
        if !self.reply.rules.iter().any(|rule| lane::is_over(self.reply, rule)) {
            return;
        }
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"9\" fill=\"url(#over)\"/>",
            x - 4.0,
            y - 9.0
        );
        text(svg, (x + 13.0, y), "", "above the limit");
    }

    fn times(&self, svg: &mut String, y: f64) {
        let mut at = 0.0;
        while at <= self.reply.duration {
            let x = self.clock.x(at);
            let _ = writeln!(svg, "<path d=\"M{x:.1} {y:.1}v5\" stroke=\"{INK}\"/>");
            let words = if at == 0.0 { "0".to_owned() } else { format!("{at} s") };
            text(svg, (x, y + 18.0), "class=\"n\" font-size=\"11\" text-anchor=\"middle\"", &words);
            at += 2.0;
        }
    }
}

#[cfg(test)]
mod tests;
