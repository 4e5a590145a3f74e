//go:build !no_raftlog

package main

// The commands that show elections on the backend raftlog. They ask the peers as a client, so
// --peer-id and --data are not required.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

// raftClient asks the peers as a client.
type raftClient struct {
	*settings
	peers *client.Client
}

func openRaftClient(s *settings) (backend, error) {
	config, err := s.raftlog.config(s)
	if err != nil {
		return backend{}, err
	}
	c, err := newRaftClient(config, config.Peers)
	if err != nil {
		return backend{}, err
	}
	return (&raftClient{s, c}).functions(), nil
}

func (r *raftClient) functions() backend {
	return backend{close: r.close, list: r.list, watch: r.watch, at: r.at, askToResign: r.askToResign}
}

// newRaftClient returns a client of peers with the credentials of a peer.
func newRaftClient(c raftlog.Config, peers []api.Peer) (*client.Client, error) {
	return client.New(client.Config{
		Cluster: c.Cluster, Peers: peers, Refresh: -1, Secret: c.Secret, TLS: c.TLS, Insecure: c.Insecure,
	})
}

func (r *raftClient) close() { _ = r.peers.Close() }

// translated returns the error of a call in the terms of package leaderelection.
func translated(err error) error {
	switch {
	case errors.Is(err, api.ErrRefused):
		return fmt.Errorf("%w: %w; the secret (--secret-file or ELECTOR_SECRET) or certificates, and --cluster, must be those of the peers", leaderelection.ErrPermission, err)
	case errors.Is(err, api.ErrNoCandidate):
		return fmt.Errorf("%w: %w", leaderelection.ErrNoCandidate, err)
	}
	return err
}

// list returns the candidates. The error wraps ErrElectionOver if the election was ended.
func (r *raftClient) list(ctx context.Context) ([]place, error) {
	e, err := r.peers.Election(ctx, r.election)
	switch {
	case err != nil:
		return nil, translated(err)
	case e.Ended:
		return nil, fmt.Errorf("%s: %w", r.election, leaderelection.ErrElectionOver)
	}
	places := []place{}
	for _, c := range e.Candidates {
		places = append(places, place{Name: c.Name, Value: c.Value, ID: c.ID, Token: int64(c.Token)})
	}
	return places, nil
}

// watch reads the election every statusPoll.
func (r *raftClient) watch(ctx context.Context) (<-chan observation, error) {
	out := make(chan observation)
	go func() {
		defer close(out)
		r.poll(ctx, out)
	}()
	return out, nil
}

// poll sends the leader after each change, until ctx is done or after an error.
func (r *raftClient) poll(ctx context.Context, out chan<- observation) {
	var last place // zero for no leader
	for first := true; ; first = false {
		places, err := r.list(ctx)
		if ctx.Err() != nil {
			return
		}
		next, leader := observation{err: err}, place{}
		if len(places) > 0 {
			next.leader, leader = &places[0], places[0] // the receiver may change the observation
		}
		if first || leader != last || err != nil {
			select {
			case out <- next:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
		last = leader
		select {
		case <-time.After(statusPoll):
		case <-ctx.Done():
			return
		}
	}
}

// at returns the functions for another election with the same client.
func (r *raftClient) at(election string) backend {
	s := *r.settings
	s.election = election
	return (&raftClient{&s, r.peers}).functions()
}

// askToResign requests a candidate to resign.
func (r *raftClient) askToResign(ctx context.Context, candidate place) error {
	return translated(r.peers.AskToResign(ctx, r.election, candidate.ID))
}
