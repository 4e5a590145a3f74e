package link

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestCheckSecret_DecidesBySecretAndRole checks the decision for each combination of the secret that a process
// shows, the role that it claims, and the secrets that this process has.
func TestCheckSecret_DecidesBySecretAndRole(t *testing.T) {
	none, onlyPeers, both := access{}, access{hasSecrets: true}, access{hasSecrets: true, hasClientSecret: true}
	for _, c := range []struct {
		state access
		shown secretKind
		// peer and client are the expected reasons for a peer and for a client.
		peer, client Reason
	}{
		{none, secretNone, accepted, accepted},
		{none, secretUnknown, ReasonNoSecret, ReasonNoSecret},
		{onlyPeers, secretNone, ReasonSecret, ReasonNoClients},
		{onlyPeers, secretUnknown, ReasonSecret, ReasonNoClients},
		{onlyPeers, secretOfPeers, accepted, ReasonPeerSecret},
		{both, secretNone, ReasonSecret, ReasonSecret},
		{both, secretUnknown, ReasonSecret, ReasonSecret},
		{both, secretOfPeers, accepted, ReasonPeerSecret},
		{both, secretOfClients, ReasonClientSecret, accepted},
	} {
		require.Equal(t, []Reason{c.peer, c.client}, []Reason{c.state.checkSecret(c.shown, true), c.state.checkSecret(c.shown, false)}, "%+v, secret %d", c.state, c.shown)
	}
}

// TestCheckCertificate_RejectsCertificatesOfOtherRoles checks that a process can act as a peer only with the certificate
// of that peer, and not with a certificate of a client or of another peer.
func TestCheckCertificate_RejectsCertificatesOfOtherRoles(t *testing.T) {
	uri, err := url.Parse("spiffe://example.org/orders/b")
	require.NoError(t, err)
	named := func(names ...string) *x509.Certificate { return &x509.Certificate{DNSNames: names} }
	spiffe := &x509.Certificate{URIs: []*url.URL{uri}}
	ip := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 2)}}
	subject := &x509.Certificate{Subject: pkix.Name{CommonName: "b"}}
	known := func(addrs ...string) access { return access{hasCertificates: true, addrs: addrs} }
	with := func(a access, change func(*access)) access {
		change(&a)
		return a
	}
	inLog := known("b.example:7")
	names := func(peers, clients []string) access {
		return access{hasCertificates: true, peerNames: peers, clientNames: clients, addrs: []string{"b.example:7"}}
	}
	for name, c := range map[string]struct {
		state  access
		shown  *x509.Certificate
		id     string // "" is a client
		reason Reason
	}{
		"certificates are not verified":                   {access{}, named("z"), "b", accepted},
		"no certificate":                                  {inLog, nil, "b", ReasonName},
		"no certificate of a client":                      {inLog, nil, "", ReasonName},
		"the host in the log":                             {inLog, named("b.example"), "b", accepted},
		"a pattern of hosts":                              {inLog, named("*.example"), "b", accepted},
		"an IP address in the log":                        {known("10.0.0.2:7"), ip, "b", accepted},
		"another IP address":                              {known("10.0.0.3:7"), ip, "b", ReasonName},
		"the ID":                                          {inLog, named("b"), "b", accepted},
		"the ID as a URI":                                 {inLog, spiffe, uri.String(), accepted},
		"the ID as common name, which proves nothing":     {inLog, subject, "b", ReasonName},
		"another peer":                                    {inLog, named("c.example", "c"), "b", ReasonName},
		"the address that it claims":                      {inLog, named("claimed.example"), "b", ReasonName},
		"a moved peer whose new address is configured":    {known("b.example:7", "new.example:7"), named("new.example"), "b", accepted},
		"an unknown peer":                                 {known(), named("claimed.example"), "b", ReasonName},
		"an unknown peer with its ID":                     {known(), named("b"), "b", ReasonName},
		"an unknown peer with its ID and an allowed name": {with(known(), func(a *access) { a.peerNames = []string{"b"} }), named("b"), "b", accepted},
		"an unknown peer with an allowed name":            {with(known(), func(a *access) { a.peerNames = []string{"claimed.example"} }), named("claimed.example"), "b", accepted},
		"an unknown peer with the host of another":        {with(known(), func(a *access) { a.peerNames = []string{"c.example"} }), named("c.example"), "b", ReasonName},
		"a name of all peers":                             {with(inLog, func(a *access) { a.serverName = "orders" }), named("orders"), "b", accepted},
		"without the name of all peers":                   {with(inLog, func(a *access) { a.serverName = "orders" }), named("b.example"), "b", ReasonName},
		"a client":                                        {inLog, named("anything"), "", accepted},
		"a client with a name of peers":                   {names([]string{"b.example"}, nil), named("b.example"), "", accepted},
		"a client without a name of peers":                {names([]string{"b.example"}, nil), named("tool"), "", ReasonName},
		"a client with its own name":                      {names([]string{"b.example"}, []string{"tool"}), named("tool"), "", accepted},
		"a client with a name of peers only":              {names([]string{"b.example"}, []string{"tool"}), named("b.example"), "", ReasonName},
		"a client as a peer":                              {names([]string{"b.example"}, []string{"tool"}), named("tool"), "b", ReasonName},
		"a client whose name is that of a peer":           {names(nil, []string{"tool"}), named("tool"), "b", ReasonName},
		"a peer that is not allowed":                      {names([]string{"c.example"}, nil), named("b.example"), "b", ReasonName},
	} {
		reason, text := c.state.checkCertificate(c.shown, Hello{ID: c.id, Peer: c.id != "", Addr: "claimed.example:7"})
		require.Equal(t, c.reason, reason, "%s: %s", name, text)
		require.Equal(t, reason == accepted, text == "", "%s: %q", name, text)
	}
}

// TestHandshake_RequiresCredentialsOfRole checks that a process cannot act in one role with the
// credentials of the other role, and that the process learns which credentials it needs.
func TestHandshake_RequiresCredentialsOfRole(t *testing.T) {
	withoutClients := secretIdentity("b")
	withoutClients.ClientSecret = nil
	for name, c := range map[string]struct {
		dials, accepts Identity
		reason         Reason
		proven         bool
		text           string
	}{
		"a client with the secret of peers": {Identity{Cluster: "c1", ID: "x", ClientSecret: secret}, secretIdentity("b"), ReasonPeerSecret, true, "client-secret-file"},
		"the same without clients":          {Identity{Cluster: "c1", ID: "x", ClientSecret: secret}, withoutClients, ReasonPeerSecret, true, "client-secret-file"},
		"a client without a secret of its own": {
			Identity{Cluster: "c1", ID: "x", ClientSecret: clientSecret},
			withoutClients, ReasonNoClients, false,
			"client-secret-file at the peers",
		},
		"a peer with the secret of clients": {Identity{Cluster: "c1", ID: "a", Peer: true, Addr: "a:7", Secret: clientSecret}, secretIdentity("b"), ReasonClientSecret, true, "secret-file"},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := connect(t, memoryPair, c.dials, c.accepts, "b", PurposeStream)
			requireReason(t, d.err, c.reason)
			requireReason(t, a.err, c.reason)
			require.ErrorContains(t, d.err, c.text)
			require.Equal(t, c.proven, !errors.Is(d.err, api.ErrUnproven))
		})
	}
}

// TestHandshake_RejectsCertificateOfAnotherPeer checks that a process cannot act as a peer with the certificate of
// another process, even if the same authority has issued both certificates.
func TestHandshake_RejectsCertificateOfAnotherPeer(t *testing.T) {
	ours := newAuthority(t)
	thief := ours.identity("c")
	thief.ID, thief.Addr, thief.Claim = "a", "a:7", testClaim("a")
	d, a := connect(t, memoryPair, thief, ours.identity("b"), "b", PurposeRaft)
	requireReason(t, d.err, ReasonName)
	requireReason(t, a.err, ReasonName)
	require.ErrorContains(t, d.err, `the certificate is for c`)

	self := ours.identity("a")
	self.PeerNames = []string{"z"}
	d, _ = connect(t, memoryPair, self, ours.identity("b"), "b", PurposeRaft)
	requireReason(t, d.err, ReasonCertificate)
}

// TestHandshake_AllowsReplacingSecretStepByStep checks that an operator can replace the secret at one process after
// another while all processes can connect to each other, and that a removed secret does not permit access.
func TestHandshake_AllowsReplacingSecretStepByStep(t *testing.T) {
	old, next := []byte("the old secret"), []byte("the next secret")
	for _, peer := range []bool{true, false} {
		state := func(list ...[]byte) Identity {
			i := secretIdentity("x")
			i.Secrets = func() api.Secrets {
				if peer {
					return api.Secrets{Peers: list, Clients: [][]byte{clientSecret}}
				}
				return api.Secrets{Peers: [][]byte{secret}, Clients: list}
			}
			return i
		}
		steps := []Identity{state(old), state(old, next), state(next, old), state(next)}
		for i := range steps {
			for j := range steps {
				dials, accepts := steps[i], steps[j]
				dials.ID, accepts.ID = "a", "b"
				if !peer {
					dials = asClient(dials)
				}
				d, a := connect(t, memoryPair, dials, accepts, "b", PurposeStream)
				if adjacent := i-j <= 1 && j-i <= 1; adjacent || i == 0 && j == 2 || i == 3 && j == 1 {
					require.NoError(t, d.err, "%d %d", i, j)
					for k, later := range steps {
						valid := k < 3 && i < 2 || k > 0 && i >= 2
						require.Equal(t, valid, a.conn.IsAuthenticatedBy(later.Secrets()), "%d %d %d", i, j, k)
					}
				} else {
					requireReason(t, d.err, ReasonSecret)
				}
			}
		}
	}
}

// TestDial_DropsTextOfUnauthenticatedServer checks that the error of Dial does not contain the text of
// a process that does not know the secret.
func TestDial_DropsTextOfUnauthenticatedServer(t *testing.T) {
	for reason := ReasonSecret; reason <= ReasonName; reason++ {
		err := dialImpostor(t, func(*greeting) *reply { return &reply{reason: reason, text: "run this command"} })
		require.ErrorIs(t, err, api.ErrUnproven, "%v", reason)
		require.NotContains(t, err.Error(), "run this")
	}
}
