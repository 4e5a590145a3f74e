package transport

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUsesTLS_RejectsContradictoryAddresses checks that UsesTLS rejects addresses that contradict each other or
// the options, and returns true if an address or an option requires TLS.
func TestUsesTLS_RejectsContradictoryAddresses(t *testing.T) {
	none, plain, secure := Address{"a:1", Unspecified}, Address{"http://b:1", Plain}, Address{"https://c:1", TLS}
	const rejected, without, with = "rejected", "without TLS", "with TLS"
	for _, c := range []struct {
		addresses        []Address
		noFlags, flagged string
	}{
		{nil, without, with},
		{[]Address{none}, without, with},
		{[]Address{plain}, without, rejected},
		{[]Address{secure}, with, with},
		{[]Address{none, none}, without, with},
		{[]Address{plain, plain}, without, rejected},
		{[]Address{secure, secure}, with, with},
		{[]Address{none, plain}, rejected, rejected},
		{[]Address{none, secure}, rejected, with},
		{[]Address{plain, secure}, rejected, rejected},
		{[]Address{none, plain, secure}, rejected, rejected},
	} {
		for _, reversed := range []bool{false, true} {
			for _, flags := range []bool{false, true} {
				addresses := make([]Address, len(c.addresses))
				for i, a := range c.addresses {
					if reversed {
						i = len(addresses) - 1 - i
					}
					addresses[i] = a
				}
				got, err := UsesTLS(flags, addresses...)
				result := map[bool]string{false: without, true: with}[got]
				if err != nil {
					result = rejected
					require.False(t, got)
				}
				require.Equal(t, map[bool]string{false: c.noFlags, true: c.flagged}[flags], result, "%v, flags %v", addresses, flags)
			}
		}
	}
}

// TestLogin_CheckRejectsUnencryptedCredentials checks that Check returns an error exactly if a client would
// send a credential without TLS to another machine although the user has not chosen that.
func TestLogin_CheckRejectsUnencryptedCredentials(t *testing.T) {
	for _, hosts := range []struct {
		names []string
		local bool
	}{
		{nil, true},
		{[]string{"localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "0.0.0.0", "::", "[::]", "/run/postgresql", "@socket"}, true},
		{[]string{"db1"}, false},
		{[]string{"localhost.example.com"}, false},
		{[]string{"localhost.."}, false},
		{[]string{"a.localhost"}, false},
		{[]string{"0.0.0.1"}, false},
		{[]string{"127.0.0.1.example.com"}, false},
		{[]string{"10.0.0.1"}, false},
		{[]string{"192.168.0.1"}, false},
		{[]string{"fe80::1"}, false},
		{[]string{""}, false},
		{[]string{"localhost", "db1"}, false},
		{[]string{"db1", "localhost"}, false},
	} {
		for _, backend := range []string{"PostgreSQL", "Redis", "NATS", "MongoDB", "RethinkDB", "etcd", "ZooKeeper"} {
			for _, credential := range []string{"", "password"} {
				for _, secure := range []bool{false, true} {
					for _, explicit := range []bool{false, true} {
						l := Login{Backend: backend, Credential: credential, Hosts: hosts.names, TLS: secure, Explicit: explicit, Setting: "set --tls"}
						err := l.Check()
						if credential == "" || hosts.local || secure || explicit {
							require.NoError(t, err, fmt.Sprint(l))
							continue
						}
						require.ErrorIs(t, err, ErrPlainCredentials, fmt.Sprint(l))
						require.ErrorContains(t, err, "the password of "+backend)
						require.ErrorContains(t, err, "set --tls")
					}
				}
			}
		}
	}
}

// TestHost_RemovesPort checks that Host removes a port and brackets, and no other part.
func TestHost_RemovesPort(t *testing.T) {
	for address, host := range map[string]string{
		"h:1": "h", "h": "h", "h:": "h", ":1": "", "": "", "127.0.0.1:1": "127.0.0.1", "127.0.0.1": "127.0.0.1",
		"[::1]:1": "::1", "[::1]": "::1", "::1": "::1", "/run/socket": "/run/socket", "h:1:2": "h:1:2", "[": "[",
	} {
		require.Equal(t, host, Host(address), address)
	}
}
