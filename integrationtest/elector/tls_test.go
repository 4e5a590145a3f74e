//go:build linux

package elector

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
)

// terminator speaks TLS before a server, and takes only clients with a certificate of a.
// refused has why others were not taken.
func terminator(t *testing.T, a *certtest.Authority, to string) (addr string, refused chan error) {
	config := a.Config("127.0.0.1")
	config.ClientAuth = tls.RequireAndVerifyClientCert
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	refused = make(chan error, 1000)
	var wg sync.WaitGroup
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer in.Close()
				if err := in.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
					refused <- err
					return
				}
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				back := make(chan struct{})
				go func() { defer close(back); _, _ = io.Copy(in, out); in.Close() }()
				_, _ = io.Copy(out, in)
				out.Close()
				<-back
			})
		}
	})
	return listener.Addr().String(), refused
}

// TestClientCertificate: servers that ask for one are given it, and without, or with one
// of somebody else's, there is no session. The servers of these tests do not speak TLS, so
// another process's does before them.
func TestClientCertificate(t *testing.T) {
	a := certtest.New(t)
	ca, cert, key := a.Files("127.0.0.1")
	_, strange, strangeKey := certtest.New(t).Files("127.0.0.1")
	addr, refused := terminator(t, a, servers.Addr(0))
	e := newElection(t)
	over := func(args ...string) []string {
		return slices.Concat([]string{"--zookeeper-servers", addr, "--ca-file", ca, "--listen", "127.0.0.1:0"}, args, program)
	}
	for id, args := range map[string][]string{
		"nobody":   nil,
		"stranger": {"--cert-file", strange, "--key-file", strangeKey},
	} {
		p := e.run(checked(t), id, over(args...)...)
		ready := p.page("/readyz")
		require.ErrorContains(t, <-refused, "certificate")
		require.Equal(t, http.StatusServiceUnavailable, code(ready()))
		p.hands()
	}
	// The other way round: servers that cannot be trusted are told nothing.
	p := e.run(checked(t), "careful", append([]string{"--zookeeper-servers", addr, "--tls"}, program...)...)
	p.says("certificate signed by unknown authority")
	p.hands()

	p = e.run(checked(t), "a", over("--cert-file", cert, "--key-file", key)...)
	e.does("a", works, 1)
	p.hands()
	require.Equal(t, []string{"a"}, e.order())
}
