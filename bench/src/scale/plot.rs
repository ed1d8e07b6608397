//! Draws the cores of the database by the number of nodes, both on logarithmic axes.

use super::costs::Costs;
use super::model::{Load, Need, limits};

/// The area of the lines.
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;

/// The powers of ten at the ends of the axes.
const NODES: (f64, f64) = (0.0, 3.0);
const CORES: (f64, f64) = (-3.0, 4.0);

/// How many points each line has.
const POINTS: u32 = 120;

pub(super) fn svg(costs: &Costs) -> String {
    let load = Load::TYPICAL;
    let mut svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 430\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"860\" height=\"430\" fill=\"#ffffff\"/>\n\
         <text x=\"70\" y=\"22\" font-size=\"15\">Cores that the database needs, 20 active runs on each node (model)</text>\n"
        .to_owned();
    for power in CORES.0 as i32..=CORES.1 as i32 {
        let y = y(10_f64.powi(power));
        svg += &format!(
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT + WIDTH,
            LEFT - 8.0,
            y + 4.0,
            10_f64.powi(power)
        );
    }
    for power in NODES.0 as i32..=NODES.1 as i32 {
        let x = x(10_f64.powi(power));
        svg += &format!(
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            TOP + HEIGHT,
            TOP + HEIGHT + 20.0,
            10_f64.powi(power)
        );
    }
    svg += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">nodes</text>\n",
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 42.0
    );
    let first = limits(&load, costs).into_iter().map(|(_, nodes)| nodes).min().unwrap_or(1).max(1);
    let shard = Need::of(first, &load, costs).cores();
    let lines: [Line<'_>; 6] = [
        ("#202020", "all", &|nodes| Need::of(nodes, &load, costs).cores()),
        ("#d1495b", "notifications", &|nodes| Need::of(nodes, &load, costs).notification_cores),
        ("#00798c", "events", &|nodes| Need::of(nodes, &load, costs).event_cores),
        ("#8d6b94", "idle nodes", &|nodes| Need::of(nodes, &load, costs).idle_cores),
        ("#edae49", "each of several databases", &|nodes| {
            Need::of(nodes.div_ceil(nodes.div_ceil(first)), &load, costs).cores()
        }),
        ("#aaaaaa", "the largest database within its limits", &|_| shard),
    ];
    for ((color, name, cores), number) in lines.into_iter().zip(0_u32..) {
        let points = (0..=POINTS).map(|step| {
            let power = NODES.0 + (NODES.1 - NODES.0) * f64::from(step) / f64::from(POINTS);
            let nodes = 10_f64.powf(power).round().max(1.0);
            format!("{:.1},{:.1}", x(nodes), y(cores(nodes as u32)))
        });
        let points: Vec<String> = points.collect();
        let legend = TOP + 12.0 + 22.0 * f64::from(number);
        svg += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\
             <line x1=\"645\" y1=\"{legend}\" x2=\"665\" y2=\"{legend}\" stroke=\"{color}\" stroke-width=\"3\"/>\
             <text x=\"671\" y=\"{:.1}\" font-size=\"11\">{name}</text>\n",
            points.join(" "),
            legend + 4.0
        );
    }
    svg + "</svg>\n"
}

/// Color, name, and cores by the number of nodes.
type Line<'a> = (&'a str, &'a str, &'a dyn Fn(u32) -> f64);

fn x(nodes: f64) -> f64 {
    LEFT + WIDTH * (nodes.log10() - NODES.0) / (NODES.1 - NODES.0)
}

fn y(cores: f64) -> f64 {
    let power = cores.max(10_f64.powf(CORES.0)).log10().min(CORES.1);
    TOP + HEIGHT * (CORES.1 - power) / (CORES.1 - CORES.0)
}
