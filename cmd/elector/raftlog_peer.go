//go:build !no_raftlog

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

const (
	// leaderPoll is the interval at which a new peer checks whether the log has a leader.
	leaderPoll = 20 * time.Millisecond
	// diagnosisInterval is the interval at which a new peer looks for the reason why the log has no
	// leader.
	diagnosisInterval = time.Second
)

func init() {
	backendKinds["raftlog"] = backendKind{
		functions: (*raftlogClient)(nil).backend(),
		flags: func(s *settings, flags *pflag.FlagSet) {
			s.raftlog.RegisterPeer(flags)
			s.raftlog.RegisterAccess(flags)
		},
		servers:        func(s *settings) string { return s.raftlog.Peers.String() },
		electionKeys:   raftlogElectionKeys,
		check:          checkRaftlog,
		checkRun:       checkRaftlogPeer,
		open:           openRaftlogClient,
		openRun:        openRaftlogPeer,
		sessionTimeout: (*settings).requestedTimeout,
		supportsValues: true,
		advise:         func(_ *settings, err error) error { return adviseFault(err) },
	}
}

// raftlogPeer is the backend raftlog of the command run: this process is a peer of the log for as long
// as it runs, so the election needs no servers.
type raftlogPeer struct {
	settings *settings
	config   raftlog.Config
	lazyNode lazy[raftlog.Node]
}

func openRaftlogPeer(s *settings) (backend, error) {
	p, err := newRaftlogPeer(s)
	if err != nil {
		return backend{}, err
	}
	return p.backend(), nil
}

func newRaftlogPeer(s *settings) (*raftlogPeer, error) {
	config, err := s.raftlogPeerConfig()
	if err != nil {
		return nil, err
	}
	return &raftlogPeer{settings: s, config: config}, nil
}

func (p *raftlogPeer) backend() backend {
	return backend{close: p.close, start: p.start, newCandidate: p.newCandidate, connected: p.checkConnected, watch: p.watch}
}

// start opens the node. During a migration, every instance must do this, because the leader on the first backend can
// join the election on raftlog only if a majority of the peers runs.
func (p *raftlogPeer) start() error {
	_, err := p.openNode()
	return err
}

// newCandidate returns a candidate as soon as a majority of the peers is available. It waits for them until ctx is
// done.
func (p *raftlogPeer) newCandidate(ctx context.Context) (leaderelection.Candidate, error) {
	node, err := p.openNode()
	if err != nil {
		return nil, err
	}
	if err := p.awaitLogLeader(ctx, node); err != nil {
		return nil, err
	}
	return raftlog.NewElection(node, p.settings.election,
		raftlog.WithName(p.settings.instanceID), raftlog.WithValue(p.settings.value),
		// The leadership ends sessionTimeout/stopGuard before the lease. In this time, --lost-grace lets the
		// program and the commands stop.
		raftlog.WithStopGuard(p.settings.sessionTimeout/stopGuard))
}

// openNode returns the node. The first successful call opens the node. An error is terminal, because a retry cannot
// succeed.
func (p *raftlogPeer) openNode() (*raftlog.Node, error) {
	return p.lazyNode.get(func() (*raftlog.Node, error) {
		node, err := raftlog.Open(p.config)
		if err == nil {
			return node, nil
		}
		code := cmdline.Permanent
		switch {
		case errors.Is(err, api.ErrNoSpace), errors.Is(err, api.ErrInUse):
			// Do not use the exit code of a usage error, so that supervisors start the program again.
			code, err = cmdline.Failed, fmt.Errorf("--dir %s: %w", p.config.Dir, err)
		case errors.Is(err, api.ErrInvalid):
			code, err = cmdline.Usage, fmt.Errorf("--dir %s: %w", p.config.Dir, err)
		case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL):
			code, err = cmdline.Failed, fmt.Errorf("--peers, --peer-listen: this peer cannot listen on %s: %w", p.config.Listen, err)
		}
		return nil, cmdline.Errorf(code, "%w: %w", elector.ErrTerminal, adviseFault(err))
	})
}

// adviseFault adds advice for the user to an error about a fault of the node.
func adviseFault(err error) error {
	if !errors.Is(err, api.ErrFault) {
		return err
	}
	return fmt.Errorf("%w; this peer has stopped so that it sends nothing wrong, and the other peers continue: if the disk was full or unavailable, fix it and restart; if the data is damaged, keep the directory of --dir for inspection, and do not start with an empty one under the same --peer-id", err)
}

// awaitLogLeader waits until the node knows the leader of the log. It logs why there is no leader, and returns an
// error if all other peers refuse this peer.
func (p *raftlogPeer) awaitLogLeader(ctx context.Context, node *raftlog.Node) error {
	poll := time.NewTicker(leaderPoll)
	defer poll.Stop()
	diagnosis := time.NewTicker(diagnosisInterval)
	defer diagnosis.Stop()
	log := p.settings.limitedLog()
	for node.Info().Leader == (api.Peer{}) {
		select {
		case <-poll.C:
		case <-diagnosis.C:
			if err := p.diagnoseMissingLeader(node.Connections(), log); err != nil {
				return err
			}
		case <-node.Done():
			return fmt.Errorf("%w: %w", leaderelection.ErrConnClosed, node.Err())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// diagnoseMissingLeader returns an error if every other peer has refused this peer because of its configuration. It
// logs a warning if no majority of the peers is connected.
func (p *raftlogPeer) diagnoseMissingLeader(connections []raftlog.Connection, log *slog.Logger) error {
	refusals, connected := 0, 0
	var cause, refusal error
	for _, c := range connections {
		switch {
		case c.Connected:
			connected++
		case c.Misconfigured:
			refusals++
			refusal = c.Err
		}
		if !c.Connected && c.Err != nil && (cause == nil || errors.Is(c.Err, api.ErrRefused)) {
			cause = c.Err
		}
	}
	if len(connections) > 0 && refusals == len(connections) {
		return fmt.Errorf("%w: every other peer refuses this one: %w; the secret (--secret-file or ELECTOR_SECRET), --cluster and --peers must be the same for all peers", leaderelection.ErrPermission, refusal)
	}
	// Ignore refusals of processes that have not authenticated themselves as peers: any process can use the address,
	// and the next attempt can reach the peer.
	if all := len(connections) + 1; connected+1 <= all/2 {
		log.Warn("no leader of the log: a majority of the peers must run, with the same secret (--secret-file or ELECTOR_SECRET)", "peers", all, "connected", connected+1, "err", cause)
	}
	return nil
}

var errNotOpened = errors.New("this peer is not opened yet")

// checkConnected returns nil if a majority of the peers has recently confirmed that this peer is up to date.
func (p *raftlogPeer) checkConnected() error {
	node := p.lazyNode.created()
	if node == nil {
		return errNotOpened
	}
	if info := node.Info(); info.Lease == 0 {
		return fmt.Errorf("no majority of the peers has confirmed recently that this peer (%s) is up to date", info.Role)
	}
	return nil
}

// watch observes the leader of the election, by the state of this peer.
func (p *raftlogPeer) watch(ctx context.Context, election string) (<-chan observation, error) {
	node := p.lazyNode.created()
	if node == nil {
		return nil, errNotOpened
	}
	observations, err := raftlog.Observe(ctx, node, election)
	if err != nil {
		return nil, err
	}
	return streamLeaders(ctx, convertObservations(observations, newCandidateInfo)), nil
}

func (p *raftlogPeer) close() {
	p.lazyNode.close(func(node *raftlog.Node) {
		if err := node.Close(); err != nil {
			p.settings.log.Error("peer has failed", "err", err)
		}
	})
}
