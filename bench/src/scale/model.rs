//! Adds the measured costs up.

use super::costs::Costs;

/// What a node does.
pub(super) struct Load {
    pub(super) runs_per_node: f64,
    pub(super) events_per_run: f64,
    /// A node has one writer. What arrives during a commit shares the next one.
    pub(super) max_commits_per_node: f64,
    pub(super) connections_per_node: f64,
}

impl Load {
    /// Agents that work: an agent writes 5 to 20 events a second.
    pub(super) const TYPICAL: Self = Self {
        runs_per_node: 20.0,
        events_per_run: 10.0,
        // A commit with a synchronous standby in the same network takes a few milliseconds.
        max_commits_per_node: 200.0,
        connections_per_node: 7.0,
    };
}

/// What the database needs for some nodes.
pub(super) struct Need {
    pub(super) runs: f64,
    pub(super) events: f64,
    pub(super) event_cores: f64,
    pub(super) notification_cores: f64,
    pub(super) idle_cores: f64,
    pub(super) wal_mib: f64,
    pub(super) connections: f64,
    pub(super) memory_gib: f64,
}

impl Need {
    pub(super) fn of(nodes: u32, load: &Load, costs: &Costs) -> Self {
        let nodes = f64::from(nodes);
        let runs = nodes * load.runs_per_node;
        let events_of_node = load.runs_per_node * load.events_per_run;
        let commits_of_node = events_of_node.min(load.max_commits_per_node);
        let (events, commits) = (nodes * events_of_node, nodes * commits_of_node);
        // An event in a commit of its own costs more than one that shares a commit.
        let event_micros = commits * costs.single_micros + (events - commits) * costs.grouped_micros;
        let connections = nodes * load.connections_per_node;
        Self {
            runs,
            events,
            event_cores: event_micros / 1e6,
            notification_cores: commits * nodes * costs.listener_micros / 1e6,
            idle_cores: nodes * costs.idle_micros / 1e6,
            wal_mib: events * costs.wal_bytes / f64::from(1 << 20),
            connections,
            memory_gib: connections * costs.connection_mib / 1024.0,
        }
    }

    pub(super) fn cores(&self) -> f64 {
        self.event_cores + self.notification_cores + self.idle_cores
    }
}

/// The largest numbers of nodes within each limit of a large server.
pub(super) fn limits(load: &Load, costs: &Costs) -> [(&'static str, u32); 4] {
    let most = |fits: &dyn Fn(&Need) -> bool| {
        (1..=100_000).take_while(|nodes| fits(&Need::of(*nodes, load, costs))).last().unwrap_or(0)
    };
    [
        ("32 cores, of which half may be busy", most(&|need| need.cores() <= 16.0)),
        ("5,000 connections", most(&|need| need.connections <= 5_000.0)),
        ("64 GiB for connections", most(&|need| need.memory_gib <= 64.0)),
        ("200 MiB/s of write-ahead log", most(&|need| need.wal_mib <= 200.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        Costs {
            grouped_micros: 50.0,
            single_micros: 200.0,
            listener_micros: 5.0,
            idle_micros: 1000.0,
            node_micros: 50.0,
            wal_bytes: 1000.0,
            connection_mib: 2.0,
        }
    }

    #[test]
    fn notifications_grow_with_the_square_of_the_nodes_and_all_else_with_their_number() {
        let [ten, hundred] = [10, 100].map(|nodes| Need::of(nodes, &Load::TYPICAL, &costs()));
        let grows = |part: fn(&Need) -> f64| (part(&hundred) / part(&ten)).round() as u32;
        assert_eq!(grows(|need| need.notification_cores), 100);
        let others: [fn(&Need) -> f64; 3] =
            [|need| need.event_cores, |need| need.idle_cores, |need| need.wal_mib];
        for part in others {
            assert_eq!(grows(part), 10);
        }
        // 10 nodes, 200 events/s each, all in commits of their own: 0.4 cores.
        assert!((ten.event_cores - 0.4).abs() < 1e-9);
        assert!((ten.notification_cores - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_limit_is_the_last_number_of_nodes_within_it() {
        let [_, (_, by_connections), ..] = limits(&Load::TYPICAL, &costs());
        assert_eq!(by_connections, 714);
    }
}
