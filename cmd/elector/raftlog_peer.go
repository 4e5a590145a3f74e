//go:build !no_raftlog

package main

// The backend raftlog: this process is a peer, and keeps the election together with the
// others. There is no server.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

const (
	// leaderPoll is how often a peer that has just been opened looks for a leader of the log.
	leaderPoll = 20 * time.Millisecond
	// askPause is how often it asks the others why there is none.
	askPause = time.Second
)

func init() {
	kinds["raftlog"] = kind{
		has: (*raftClient)(nil).functions(), check: checkRaftlog, checkRun: checkRaftPeer,
		open: openRaftClient, openRun: openRaftPeer,
		session: func(s *settings) time.Duration { return s.zookeeper.session },
		servers: func(s *settings) string { return strings.Join(s.raftlog.peers, ",") },
		flags:   func(s *settings, flags *pflag.FlagSet) { s.raftlog.register(flags) },
		advise:  func(_ *settings, err error) error { return advised(err) },
		values:  true,
	}
}

// raftPeer is one peer, for the life of the process.
type raftPeer struct {
	*settings
	config raftlog.Config

	mu   sync.Mutex                   // of who opens
	node atomic.Pointer[raftlog.Node] // nil before it is needed
}

func checkRaftlog(s *settings) error {
	if _, err := s.raftlog.config(s); err != nil {
		return err
	}
	return s.checkElection(raftlog.CheckName)
}

// checkRaftPeer checks the settings of a process that is a peer.
func checkRaftPeer(s *settings) error {
	c, err := s.raftlog.config(s)
	if err != nil {
		return err
	}
	switch {
	case c.ID == "":
		return usage("--peer-id is required: which of --peers this process is")
	case c.Addr == "":
		return usage("--peer-id %s: not one of --peers", c.ID)
	case c.Dir == "":
		return usage("--data is required: a folder for this peer's data")
	}
	if err := checkAddress("peer-listen", c.Listen); err != nil {
		return err
	}
	if err := raftlog.CheckCandidate(s.instanceID, s.value); err != nil {
		return usage("--instance-id, --value: %w", err)
	}
	return nil
}

func openRaftPeer(s *settings) (backend, error) {
	p, err := newRaftPeer(s)
	if err != nil {
		return backend{}, err
	}
	return p.functions(), nil
}

func newRaftPeer(s *settings) (*raftPeer, error) {
	config, err := s.raftlog.config(s)
	if err != nil {
		return nil, err
	}
	return &raftPeer{settings: s, config: config}, nil
}

func (p *raftPeer) functions() backend {
	return backend{
		close: p.close, candidate: p.candidate, session: p.session, connected: p.connected, watch: p.watch,
	}
}

// session is the log's election timeout: who is silent for so long loses its place in line.
func (p *raftPeer) session() time.Duration { return p.zookeeper.session }

// candidate waits for a majority of the peers without limit.
func (p *raftPeer) candidate(ctx context.Context) (leaderelection.Candidate, error) {
	node, err := p.open()
	if err != nil {
		return nil, err
	}
	if err := p.joined(ctx, node); err != nil {
		return nil, err
	}
	return raftlog.NewElection(node, p.election, raftlog.WithClientName(p.instanceID), raftlog.WithValue(p.value),
		// What is left of the lease is for the end of what runs: --lost-grace.
		raftlog.WithStopGuard(p.session()/spare))
}

// open opens the node, once. What fails then is not mended by another try.
func (p *raftPeer) open() (*raftlog.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node := p.node.Load(); node != nil {
		return node, nil
	}
	node, err := raftlog.Open(p.config)
	if err != nil {
		code := exitBackend
		switch {
		case errors.Is(err, api.ErrInvalid):
			code, err = exitUsage, fmt.Errorf("--data %s: %w", p.config.Dir, err)
		case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL):
			code, err = exitFailed, fmt.Errorf("--peers, --peer-listen: this peer cannot listen on %s: %w", p.config.Listen, err)
		}
		return nil, &cmdline.Error{Code: code, Err: fmt.Errorf("%w: %w", elector.ErrTerminal, advised(err))}
	}
	p.node.Store(node)
	return node, nil
}

// advised adds to a fault of the node what to do about it.
func advised(err error) error {
	if !errors.Is(err, api.ErrFault) {
		return err
	}
	return fmt.Errorf("%w; this peer has stopped so that nothing false is told to the others, which go on: if the disk was full or away, mend that and start again; if the data are damaged, keep the folder of --data for inspection, and do not start an empty one under the same --peer-id", err)
}

// joined waits until the node knows who leads the log. Meanwhile it asks the others, whether
// that is still to come: where all of them refuse this peer it is not.
func (p *raftPeer) joined(ctx context.Context, node *raftlog.Node) error {
	poll := time.NewTicker(leaderPoll)
	defer poll.Stop()
	ask := time.NewTicker(askPause)
	defer ask.Stop()
	for node.Info().Leader == (api.Peer{}) {
		select {
		case <-poll.C:
		case <-ask.C:
			if err := p.refused(ctx); err != nil {
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

// refused is an error if every other peer refuses this one. What else others say is logged.
func (p *raftPeer) refused(ctx context.Context) error {
	others := slices.DeleteFunc(slices.Clone(p.config.Peers), func(o api.Peer) bool { return o.ID == p.config.ID })
	if len(others) == 0 {
		return nil
	}
	c, err := newRaftClient(p.config, others)
	if err != nil {
		return err
	}
	defer c.Close()
	refusals, answers := 0, 0
	var why error
	for _, info := range c.Infos(ctx) {
		switch {
		case info.Err == nil:
			answers++
		case errors.Is(info.Err, api.ErrRefused):
			refusals++
			why = info.Err
		case why == nil:
			why = info.Err
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refusals == len(others):
		return fmt.Errorf("%w: every other peer refuses this one: %w; the secret (--secret-file or ELECTOR_SECRET), --cluster and --peers must be the same for all peers", leaderelection.ErrPermission, why)
	}
	if all := len(p.config.Peers); answers+1 <= all/2 {
		p.log.Warn("no leader of the log: a majority of the peers must run", "peers", all, "answering", answers+1, "err", why)
	}
	return nil
}

// connected is nil while a majority of the peers has confirmed lately that this one knows all.
func (p *raftPeer) connected() error {
	node := p.node.Load()
	if node == nil {
		return errors.New("this peer is not opened yet")
	}
	if info := node.Info(); info.Lease == 0 {
		return fmt.Errorf("no majority of the peers has confirmed this one lately; it is %s", info.Role)
	}
	return nil
}

// watch observes the election at this peer.
func (p *raftPeer) watch(ctx context.Context) (<-chan observation, error) {
	node := p.node.Load()
	if node == nil {
		return nil, errors.New("this peer is not opened yet")
	}
	in, err := raftlog.Observe(ctx, node, p.election)
	if err != nil {
		return nil, err
	}
	return observe(ctx, in, placeOf), nil
}

func (p *raftPeer) close() {
	node := p.node.Load()
	if node == nil {
		return
	}
	if err := node.Close(); err != nil {
		p.log.Error("peer has failed", "err", err)
	}
}
