//go:build linux

package elector

import (
	"crypto/tls"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestRun_SendsClientCertificate checks that elector connects with its client certificate, is not ready without a
// valid certificate, and does not trust a server with an unknown authority. A proxy implements TLS, because the
// servers of these tests do not.
func TestRun_SendsClientCertificate(t *testing.T) {
	a := testenv.NewAuthority(t)
	ca, cert, key := a.Files("127.0.0.1")
	_, otherCert, otherKey := testenv.NewAuthority(t).Files("127.0.0.1")
	config := a.Config("127.0.0.1")
	config.ClientAuth = tls.RequireAndVerifyClientCert
	addr, rejected := testenv.StartTLSProxy(t, config, servers.Addr(0))
	el := newElection(t)
	withTLS := func(args ...string) []string {
		return slices.Concat([]string{"--zookeeper-servers", addr, "--ca-file", ca, "--listen", "127.0.0.1:0"}, args, program)
	}
	for id, args := range map[string][]string{
		"no-cert":    nil,
		"other-cert": {"--cert-file", otherCert, "--key-file", otherKey},
	} {
		p := el.start(buildWithRace(t), id, withTLS(args...)...)
		ready := p.getPage("/readyz")
		require.ErrorContains(t, <-rejected, "certificate")
		require.Equal(t, http.StatusServiceUnavailable, statusCode(ready()))
		p.terminate()
	}
	// Without --ca-file, the elector does not know the authority of the server, and must not connect.
	p := el.start(buildWithRace(t), "unknown-server", append([]string{"--zookeeper-servers", addr, "--tls"}, program...)...)
	p.waitLog("certificate signed by unknown authority")
	p.terminate()

	p = el.start(buildWithRace(t), "a", withTLS("--cert-file", cert, "--key-file", key)...)
	el.waitEvent("a", eventWork, 1)
	p.terminate()
	require.Equal(t, []string{"a"}, el.order())
}
