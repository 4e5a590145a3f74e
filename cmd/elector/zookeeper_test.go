//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// openBackend opens the backend on servers.
func openBackend(t *testing.T, s *settings) backend {
	t.Helper()
	s.backend, s.instanceID, s.election = "zookeeper", "me", "/election"
	s.log = slog.New(slog.DiscardHandler)
	s.zookeeper.session = 5 * time.Second
	b, err := s.open()
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

// TestGrantedTimeout: leases are reckoned by what the server grants.
func TestGrantedTimeout(t *testing.T) {
	srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
	z := openBackend(t, &settings{zookeeper: zookeeperSettings{servers: srv.Addr()}})
	require.NoError(t, z.negotiate(t.Context()))
	require.Equal(t, 2*time.Second, z.session())
}

func TestCredentials(t *testing.T) {
	srv := zktest.Start(t)
	z := openBackend(t, &settings{zookeeper: zookeeperSettings{servers: srv.Addr(), auth: "me:secret"}})
	for range 2 {
		_, err := z.candidate(t.Context())
		require.NoError(t, err)
	}
	other, _, err := srv.Connect(session)
	require.NoError(t, err)
	acl, _, err := other.GetACL("/election")
	require.NoError(t, err)
	require.Len(t, acl, 2)
	require.Equal(t, "digest", acl[0].Scheme)
	_, err = other.Set("/election", nil, -1)
	require.Error(t, err, "everybody may write")
	_, _, err = other.Get("/election")
	require.NoError(t, err, "not everybody may read")
}

// TestNobodyAnswers: candidate waits for as long as its context lasts.
func TestNobodyAnswers(t *testing.T) {
	srv := zktest.Start(t)
	addr := srv.Addr()
	srv.Stop()
	for _, auth := range []string{"", "me:secret"} {
		z := openBackend(t, &settings{zookeeper: zookeeperSettings{servers: addr, auth: auth}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := z.candidate(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// terminator is a server that speaks TLS, and passes on what is in it.
func terminator(t *testing.T, to string) (addr, caFile string) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	config := &tls.Config{Certificates: web.TLS.Certificates}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	web.Close()
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(caFile, ca, 0o600))
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(out, in); out.Close(); in.Close() })
			wg.Go(func() { _, _ = io.Copy(in, out); out.Close(); in.Close() })
		}
	})
	return listener.Addr().String(), caFile
}

func TestTLS(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t)
	addr, caFile := terminator(t, srv.Addr())
	t.Run("trusted", func(t *testing.T) {
		z := openBackend(t, &settings{caFile: caFile, zookeeper: zookeeperSettings{servers: addr}})
		_, err := z.candidate(t.Context())
		require.NoError(t, err)
		z.close() // before the terminator
	})
	t.Run("not trusted", func(t *testing.T) {
		z := openBackend(t, &settings{zookeeper: zookeeperSettings{servers: addr, tls: true}})
		require.Eventually(t, func() bool { // two seconds may be too short for a handshake
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			return strings.Contains(z.negotiate(ctx).Error(), "certificate")
		}, time.Minute, time.Millisecond)
		z.close() // before the terminator
	})
}
