package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

const (
	permRead   = 1
	permWrite  = 2
	permCreate = 4
	permDelete = 8
	permAdmin  = 16
	permAll    = 31
)

// acl is an access control list. Znodes with equal lists share one acl, because most trees contain
// only one or two different lists.
type acl struct {
	list []wire.ACL
	open bool // reports that every client has all permissions, so that allows needs no loop
}

type aclCache struct{ byKey map[string]*acl }

func newACLCache() *aclCache { return &aclCache{byKey: make(map[string]*acl)} }

func (c *aclCache) intern(list []wire.ACL) *acl {
	var key strings.Builder
	for _, a := range list {
		key.WriteString(strconv.Itoa(int(a.Perms)))
		key.WriteByte(' ')
		key.WriteString(a.Scheme)
		key.WriteByte(' ')
		key.WriteString(a.ID)
		key.WriteByte(0)
	}
	if a, ok := c.byKey[key.String()]; ok {
		return a
	}
	a := &acl{list: list}
	for _, e := range list {
		a.open = a.open || e.Scheme == "world" && e.ID == "anyone" && e.Perms&permAll == permAll
	}
	c.byKey[key.String()] = a
	return a
}

// authID is an identity of a client, to which entries of an ACL can refer: a credential or an
// address.
type authID struct{ scheme, id string }

// allows reports whether one of ids has the permission perm.
func (a *acl) allows(perm int32, ids []authID) bool {
	if a.open || len(a.list) == 0 {
		return true
	}
	for _, id := range ids {
		if id.scheme == "super" {
			return true
		}
	}
	for _, e := range a.list {
		if e.Perms&perm == 0 {
			continue
		}
		if e.Scheme == "world" && e.ID == "anyone" {
			return true
		}
		for _, id := range ids {
			if id.scheme != e.Scheme {
				continue
			}
			if e.Scheme == "digest" && id.id == e.ID || e.Scheme == "ip" && ipMatches(id.id, e.ID) {
				return true
			}
		}
	}
	return false
}

// expand validates a list that a client sent, and replaces "auth" by the identities of the client.
func (c *aclCache) expand(list []wire.ACL, ids []authID) (*acl, Code) {
	var out []wire.ACL
	for i, a := range list {
		if slices.Contains(list[:i], a) {
			continue
		}
		switch a.Scheme {
		case "world":
			if a.ID != "anyone" {
				return nil, codeInvalidACL
			}
			out = append(out, a)
		case "auth":
			found := false
			for _, id := range ids {
				if id.scheme == "digest" { // skip the address of the client, which the client has not authenticated
					found = true
					out = append(out, wire.ACL{Perms: a.Perms, Scheme: id.scheme, ID: id.id})
				}
			}
			if !found {
				return nil, codeInvalidACL
			}
		case "digest":
			if !validDigestID(a.ID) {
				return nil, codeInvalidACL
			}
			out = append(out, a)
		case "ip":
			if _, ok := parseIPRule(a.ID); !ok {
				return nil, codeInvalidACL
			}
			out = append(out, a)
		default:
			return nil, codeInvalidACL
		}
	}
	if len(out) == 0 {
		return nil, codeInvalidACL
	}
	return c.intern(out), codeOK
}

// validDigestID reports whether id consists of a user and a hash, separated by a colon. Like a real
// server, it ignores colons at the end.
func validDigestID(id string) bool {
	return len(strings.Split(strings.TrimRight(id, ":"), ":")) == 2
}

// digestID returns the ID in an ACL that a credential "user:password" matches: the user and a hash
// of the credential.
func digestID(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// parseIPRule parses "a.b.c.d" or "a.b.c.d/bits". Like a real server, parseIPRule supports only
// IPv4.
func parseIPRule(rule string) (netip.Prefix, bool) {
	addr, bits, ok := strings.Cut(rule, "/")
	ip, err := netip.ParseAddr(addr)
	if err != nil || !ip.Is4() {
		return netip.Prefix{}, false
	}
	n := 32
	if ok {
		if n, err = strconv.Atoi(bits); err != nil || n < 0 || n > 32 {
			return netip.Prefix{}, false
		}
	}
	return netip.PrefixFrom(ip, n), true
}

func ipMatches(addr, rule string) bool {
	p, ok := parseIPRule(rule)
	if !ok {
		return false
	}
	ip, err := netip.ParseAddr(addr)
	return err == nil && p.Contains(ip.Unmap())
}

// withoutPasswords returns the list without the passwords of digest entries, for clients that may read the
// list but not change it.
func (a *acl) withoutPasswords() []wire.ACL {
	out := slices.Clone(a.list)
	for i, e := range out {
		if user, _, ok := strings.Cut(e.ID, ":"); ok && e.Scheme == "digest" {
			out[i].ID = user + ":x"
		}
	}
	return out
}

func (e *ensemble) authenticate(c *conn, r *wire.Request) Code {
	add := func(id authID) {
		if !slices.Contains(c.ids, id) {
			c.ids = append(c.ids, id)
		}
	}
	switch r.Scheme {
	case "ip":
		add(authID{"ip", c.addr})
	case "digest":
		credential := string(r.Data)
		if e.cfg.superUser != "" && credential == e.cfg.superUser {
			add(authID{"super", ""})
		}
		add(authID{"digest", digestID(credential)})
	default:
		return codeAuthFailed
	}
	return codeOK
}

func (e *ensemble) whoAmI(c *conn) {
	e.body.Int(int32(len(c.ids)))
	for _, id := range c.ids {
		user := id.id
		if id.scheme == "digest" {
			user, _, _ = strings.Cut(id.id, ":")
		}
		e.body.String(id.scheme)
		e.body.String(user)
	}
}
