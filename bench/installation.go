package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// installation contains the running servers, and the contestants that use them.
type installation struct {
	// startServers starts n servers. It returns their addresses and the backend that runs them.
	startServers func(ctx context.Context, n int) (addrs []string, backend string, stop func() error, err error)

	server      *server
	backend     string
	contestants []contestant // all contestants; the baseline is the first
	absent      []absentContestant
	closers     []func() error
}

func startServers(ctx context.Context, n int) (addrs []string, backend string, stop func() error, err error) {
	e, err := ensemble.StartBenchmarked(ctx, n, sessionTimeout/10)
	if err != nil {
		return nil, "", nil, err
	}
	return e.Addrs(), e.Backend().String(), e.Close, nil
}

// open starts n servers and all contestants. The caller must call close, even after an error.
func (b *bench) open(ctx context.Context, n int) error {
	addrs, backend, stop, err := b.startServers(ctx, n)
	if err != nil {
		return err
	}
	b.backend = backend
	b.closers = append(b.closers, stop)
	if b.server, err = connectServer(strings.Join(addrs, ",")); err != nil {
		return err
	}
	b.closers = append(b.closers, func() error {
		b.server.close()
		return nil
	})
	for i := range addrs {
		if b.delay == 0 {
			break
		}
		network, err := zkproxy.New(addrs[i])
		if err != nil {
			return err
		}
		b.closers = append(b.closers, func() error {
			network.Close()
			return nil
		})
		network.Delay(zkproxy.Both, b.delay)
		addrs[i] = network.Addr()
	}
	b.contestants, b.absent = b.startContestants(ctx, strings.Join(addrs, ","), sessionTimeout)
	b.closers = append(b.closers, func() error { return closeContestants(b.contestants) })
	return nil
}

// close stops the contestants and servers that open has started.
func (i *installation) close() error {
	var err error
	for _, closeNext := range slices.Backward(i.closers) {
		err = errors.Join(err, closeNext())
	}
	i.closers = nil
	return err
}

// onEnsemble calls measure with an ensemble of n servers, among which the sessions are distributed.
func (b *bench) onEnsemble(ctx context.Context, n int, measure func(*bench) error) (err error) {
	e := &bench{settings: b.settings, dir: b.dir, random: b.random, installation: installation{startServers: b.startServers}}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.open(ctx, n); err != nil {
		return err
	}
	return measure(e)
}
