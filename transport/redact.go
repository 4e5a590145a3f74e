package transport

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	// hiddenAddress replaces an address that Redact cannot parse reliably.
	hiddenAddress = "(address hidden)"
	// hiddenPart replaces a hidden part of an address, as in [url.URL.Redacted].
	hiddenPart = "xxxxx"
)

// shownParameters contains the parameters, in lower case, whose values are shown because they never contain a
// password.
var shownParameters = []string{
	"application_name", "appname", "authmechanism", "authsource", "bucket", "collection", "connect_timeout", "directconnection",
	"poll", "pool_max_conns", "replicaset", "sslmode", "ssl", "table", "target_session_attrs", "tls", "unsafe", "wsrep_sync_wait",
}

// maskedParameters contains the parameters, in lower case, whose names are shown and whose values are hidden.
// The name of any other parameter is hidden as well, because it can be the beginning of a password that
// contains an equals sign.
var maskedParameters = []string{
	"auth", "authmechanismproperties", "pass", "password", "sslpassword", "token", "user", "username", "w",
}

// usersShown contains the schemes of addresses in which a text without a colon before the host is the name of a
// user. With other schemes, such a text can be a password or a token, and is hidden.
var usersShown = []string{"mariadb", "mongodb", "mongodb+srv", "mysql", "postgres", "postgresql", "rethinkdb"}

var (
	validHosts   = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(,([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?)*$`)
	plainText    = regexp.MustCompile(`^[A-Za-z0-9._%:,/-]*$`)
	validScheme  = regexp.MustCompile(`^[a-z][a-z+]*$`)
	shownUser    = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	doubtfulText = "#\\ \t\r\n"
)

// Redact returns an address without its passwords and tokens, for messages. It shows the values of known
// parameters only. A text that is not a URL with a server, or whose parts are doubtful because a password
// contains special characters that are not escaped, is hidden.
func Redact(address string) string {
	if address == "" || address == "memory:" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" || strings.ContainsAny(address, doubtfulText) || !validScheme.MatchString(u.Scheme) ||
		!validHosts.MatchString(u.Host) || strings.Contains(u.RawQuery, "@") || !plainText.MatchString(u.EscapedPath()) {
		return hiddenAddress
	}
	text := u.Scheme + "://"
	if u.User != nil {
		text += redactUser(u) + "@"
	}
	text += u.Host + u.EscapedPath()
	if u.RawQuery == "" {
		return text
	}
	parameters := strings.Split(u.RawQuery, "&")
	for i, p := range parameters {
		parameters[i] = redactParameter(p)
	}
	return text + "?" + strings.Join(parameters, "&")
}

// redactUser returns the part of an address before its host, without passwords and tokens.
func redactUser(u *url.URL) string {
	name := u.User.Username()
	password, hasPassword := u.User.Password()
	if password == "" && !slices.Contains(usersShown, u.Scheme) {
		return hiddenPart // the name can be a token of NATS, or a password without a colon before it
	}
	if name != "" && !shownUser.MatchString(name) || strings.Contains(password, "@") { // an @ in the password means that the text is a list of addresses
		name = hiddenPart
	}
	if hasPassword {
		name += ":" + hiddenPart
	}
	return name
}

// redactParameter returns a parameter, name=value. It hides the value unless that cannot contain a password.
func redactParameter(p string) string {
	name, value, found := strings.Cut(p, "=")
	key := strings.ToLower(name)
	shown := slices.Contains(shownParameters, key)
	switch {
	case !found || !shown && !slices.Contains(maskedParameters, key):
		return hiddenPart
	case shown && plainText.MatchString(value):
		return p
	}
	return name + "=" + hiddenPart
}
