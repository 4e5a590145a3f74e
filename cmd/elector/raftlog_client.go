//go:build !no_raftlog

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/resign"
)

// raftlogClient is the backend raftlog for commands other than run. It sends requests to the peers as a client, so
// these commands do not need --peer-id and --dir.
type raftlogClient struct {
	settings *settings
	peers    *client.Client
}

func openRaftlogClient(s *settings) (backend, error) {
	config, err := s.raftlogClientConfig()
	if err != nil {
		return backend{}, err
	}
	peers, err := client.New(config)
	if err != nil {
		return backend{}, err
	}
	return (&raftlogClient{s, peers}).backend(), nil
}

func (r *raftlogClient) backend() backend {
	return backend{
		close: r.close, list: r.list, watch: r.watch, requestResignation: r.requestResignation, anyElection: true,
	}
}

func (r *raftlogClient) close() { _ = r.peers.Close() }

// translateError returns an error of the client that wraps the corresponding error of package leaderelection.
func translateError(err error) error {
	switch {
	case errors.Is(err, api.ErrRefused):
		return fmt.Errorf("%w: %w; the secret of clients (--client-secret-file or ELECTOR_CLIENT_SECRET) or certificates, and --cluster, must be those of the peers", leaderelection.ErrPermission, err)
	case errors.Is(err, api.ErrNoCandidate):
		return fmt.Errorf("%w: %w", resign.ErrNoCandidate, err)
	}
	return err
}

// list returns the candidates. The error wraps leaderelection.ErrElectionOver if the election has
// ended.
func (r *raftlogClient) list(ctx context.Context, election string) ([]candidateInfo, error) {
	defer r.settings.warnWhileWaiting()()
	e, err := r.peers.Election(ctx, election)
	switch {
	case err != nil:
		return nil, translateError(err)
	case e.Ended:
		return nil, fmt.Errorf("%s: %w", election, leaderelection.ErrElectionOver)
	}
	candidates := []candidateInfo{}
	for _, c := range e.Candidates {
		candidates = append(candidates, candidateInfo{Name: c.Name, Value: c.Value, ID: c.ID, Token: int64(c.Token)})
	}
	return candidates, nil
}

// watch observes the leader by listing the candidates at the interval statusPoll.
func (r *raftlogClient) watch(ctx context.Context, election string) (<-chan observation, error) {
	return streamLeaders(ctx, func(yield func(*candidateInfo, error) bool) {
		for {
			candidates, err := r.list(ctx, election)
			var leader *candidateInfo
			if len(candidates) > 0 {
				leader = &candidates[0]
			}
			if !yield(leader, err) {
				return
			}
			if limit.Pause(ctx, statusPoll) != nil {
				return
			}
		}
	}), nil
}

func (r *raftlogClient) requestResignation(ctx context.Context, election string, candidate candidateInfo) error {
	defer r.settings.warnWhileWaiting()()
	return translateError(r.peers.RequestResign(ctx, election, candidate.ID))
}
