package link

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestValidate_RejectsInvalidIdentity(t *testing.T) {
	ours := newAuthority(t)
	for name, c := range map[string]struct {
		change func(*Identity)
		text   string
	}{
		"no cluster":                {func(i *Identity) { i.Cluster = "" }, "cluster"},
		"long cluster":              {func(i *Identity) { i.Cluster = strings.Repeat("x", maxField+1) }, "cluster"},
		"no ID":                     {func(i *Identity) { i.ID = "" }, "ID"},
		"long ID":                   {func(i *Identity) { i.ID = strings.Repeat("x", maxField+1) }, "ID"},
		"long address":              {func(i *Identity) { i.Addr = strings.Repeat("x", maxField+1) }, "address"},
		"no mode":                   {func(i *Identity) { i.TLS = nil }, "one of"},
		"an empty secret":           {func(i *Identity) { i.TLS, i.Secret = nil, []byte{} }, "one of"},
		"insecure and TLS":          {func(i *Identity) { i.Insecure = true }, "cannot be combined"},
		"insecure and a secret":     {func(i *Identity) { i.TLS, i.Insecure, i.Secret = nil, true, secret }, "cannot be combined"},
		"one secret for both roles": {func(i *Identity) { i.TLS, i.Secret, i.ClientSecret = nil, secret, secret }, "also a secret of clients"},
		"only a secret of clients":  {func(i *Identity) { i.ClientSecret = secret }, "peers need their own"},
		"no secret at this moment": {func(i *Identity) {
			i.Secrets = func() api.Secrets { return api.Secrets{Clients: [][]byte{secret}} }
		}, "peers need their own"},
		"an empty secret of a list": {func(i *Identity) {
			i.Secrets = func() api.Secrets { return api.Secrets{Peers: [][]byte{secret, {}}} }
		}, "empty"},
		"names without certificates": {func(i *Identity) { i.TLS, i.Secret, i.PeerNames = nil, secret, []string{"a"} }, "require TLS"},
		"names of unverified certificates": {func(i *Identity) {
			i.TLS.InsecureSkipVerify, i.Secret, i.PeerNames = true, secret, []string{"a"}
		}, "disables the verification"},
		"TLS 1.2":          {func(i *Identity) { i.TLS.MaxVersion = 0x0303 }, "MaxVersion"},
		"no certificate":   {func(i *Identity) { i.TLS.Certificates = nil }, "certificate"},
		"no verification":  {func(i *Identity) { i.TLS.InsecureSkipVerify = true }, "InsecureSkipVerify"},
		"the system's CAs": {func(i *Identity) { i.TLS.ClientCAs = nil }, "ClientCAs"},
	} {
		t.Run(name, func(t *testing.T) {
			self := ours.identity("a")
			require.NoError(t, self.Validate())
			c.change(&self)
			err := self.Validate()
			require.ErrorIs(t, err, api.ErrInvalid)
			require.Contains(t, err.Error(), c.text)
			near, far := memoryPair(t)
			if name != "no verification" {
				_, err = Accept(t.Context(), far, self)
				require.ErrorIs(t, err, api.ErrInvalid)
			}
			if name != "the system's CAs" {
				_, err = Dial(t.Context(), near, self, peerB, PurposeRaft)
				require.ErrorIs(t, err, api.ErrInvalid)
				_, err = near.Write([]byte{1})
				require.Error(t, err, "the connection is open")
			}
		})
	}
	near, _ := memoryPair(t)
	_, err := Dial(t.Context(), near, insecureIdentity("a"), api.Peer{ID: strings.Repeat("x", maxField+1)}, PurposeRaft)
	require.ErrorIs(t, err, api.ErrInvalid)
	near, _ = memoryPair(t)
	_, err = Dial(t.Context(), near, insecureIdentity("a"), peerB, 0)
	require.ErrorIs(t, err, api.ErrInvalid)
}
