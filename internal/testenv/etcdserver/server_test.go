package etcdserver

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
)

// TestKillAndRestart: what was written is there after kill -9, at the same address.
func TestKillAndRestart(t *testing.T) {
	c := Start(t, Config{})
	key := map[string]any{"key": []byte("a"), "value": []byte("b")}
	var put struct {
		Header struct{ Revision string }
	}
	require.NoError(t, c.Call(0, "kv/put", key, &put))
	c.Kill(0)
	c.Restart(0)
	delete(key, "value")
	var got struct {
		Kvs []struct {
			Created string `json:"create_revision"`
		}
	}
	require.NoError(t, c.Call(0, "kv/range", key, &got))
	require.Len(t, got.Kvs, 1)
	require.Equal(t, put.Header.Revision, got.Kvs[0].Created)
	var lease struct{ TTL string }
	require.NoError(t, c.Call(0, "lease/grant", map[string]any{"TTL": 1}, &lease))
	require.Equal(t, "1", lease.TTL, "the least TTL is longer")
}

// TestLeader: when the cluster's leader is stopped another server leads.
func TestLeader(t *testing.T) {
	c := Start(t, Config{Members: 3})
	first := c.Leader()
	c.Pause(first)
	require.Eventually(t, func() bool { return c.Leader() != first }, 10*time.Second, 10*time.Millisecond)
	c.Resume(first)
}

func TestTLS(t *testing.T) {
	a := certtest.New(t)
	c := Start(t, Config{TLS: a})
	var status struct{ Leader string }
	require.NoError(t, c.Call(0, "maintenance/status", struct{}{}, &status))
	require.NotEmpty(t, status.Leader)
	stranger := &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.Pool},
		},
	}
	answer, err := stranger.Get(c.URL(0) + "/health")
	if err == nil {
		answer.Body.Close()
	}
	require.Error(t, err, "no certificate was asked for")
}
