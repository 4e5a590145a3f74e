package transport

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRedact_HidesPasswords checks that Redact shows no password, and hides no other part of the address.
func TestRedact_HidesPasswords(t *testing.T) {
	for address, redacted := range map[string]string{
		"":                                    "",
		"memory:":                             "memory:",
		"redis://me:secret@host":              "redis://me:xxxxx@host",
		"redis://:secret@host:6379/0":         "redis://:xxxxx@host:6379/0",
		"redis://secret@host":                 "redis://xxxxx@host",
		"nats://secret@host:4222":             "nats://xxxxx@host:4222",
		"tls://secret@host":                   "tls://xxxxx@host",
		"nats://secret:@host":                 "nats://xxxxx@host",
		"nats://secret@host,you:secret@other": "nats://xxxxx:xxxxx@other",
		"postgres://me@[::1]:5433/db":         "postgres://me@[::1]:5433/db",
		"mysql://me@host/db?poll=1s&password=secret":                             "mysql://me@host/db?poll=1s&password=xxxxx",
		"mariadb://me:secret@host/db?secret=1":                                   "mariadb://me:xxxxx@host/db?xxxxx",
		"postgres://me%40secret@host/db":                                         "postgres://xxxxx@host/db",
		"postgress://me:secret@host/db":                                          "postgress://me:xxxxx@host/db",
		"redis://me:secret word@host":                                            hiddenAddress,
		"postgres:user:secret@host":                                              hiddenAddress,
		"postgres:/user:secret@host":                                             hiddenAddress,
		"postgres//user:secret@host":                                             hiddenAddress,
		"host=db user=me password=secret":                                        hiddenAddress,
		"me:secret@host":                                                         hiddenAddress,
		"secret":                                                                 hiddenAddress,
		"a://:secret:#@":                                                         hiddenAddress,
		"nats://secret#@host":                                                    hiddenAddress,
		"redis://me:1?secret@host":                                               hiddenAddress,
		"redis://me:1/secret@host":                                               hiddenAddress,
		"redis://:secret:@":                                                      hiddenAddress,
		"postgres://me:%secret@host/db":                                          hiddenAddress,
		"postgres://me:1\\secret@host/db":                                        hiddenAddress,
		"postgres://app@db/x?sslmode=a":                                          "postgres://app@db/x?sslmode=a",
		"postgres://app@db/x?pass=secret":                                        "postgres://app@db/x?pass=xxxxx",
		"postgres://app@db/x?auth=secret":                                        "postgres://app@db/x?auth=xxxxx",
		"postgres://app@db/x?sslmode=a#secret":                                   hiddenAddress,
		"postgres://app@db/x?password=a#secret":                                  hiddenAddress,
		"postgres://app@db/x?password=secret&table=t%2Fu":                        "postgres://app@db/x?password=xxxxx&table=t%2Fu",
		"postgres://app@db/x?sslPassWord=secret":                                 "postgres://app@db/x?sslPassWord=xxxxx",
		"postgres://app@db/x?p%61ssword=secret=secret":                           "postgres://app@db/x?xxxxx",
		"postgres://app@db/x?password%3Dsecret":                                  "postgres://app@db/x?xxxxx",
		"postgres://app@db/x?secret":                                             "postgres://app@db/x?xxxxx",
		"postgres://app@db/x?secret=":                                            "postgres://app@db/x?xxxxx",
		"mongodb://h/d?w=1;tlsCertificateKeyFilePassword=secret&tls=true":        "mongodb://h/d?w=xxxxx&tls=true",
		"mongodb://h/d?tls=true;tlsCertificateKeyFilePassword=secret":            "mongodb://h/d?tls=xxxxx",
		"mongodb://h/d?authMechanismProperties=AWS_SESSION_TOKEN:secret&appName": "mongodb://h/d?authMechanismProperties=xxxxx&xxxxx",
	} {
		require.Equal(t, redacted, Redact(address), address)
	}
}

// FuzzRedact checks that Redact shows no password, wherever the address contains the password. The letters of
// the marker occur in no other part of the address.
func FuzzRedact(f *testing.F) {
	const marker = "QZXQZX"
	for _, scheme := range []string{"postgres", "redis", "nats", "mongodb", "a"} {
		for _, around := range []string{"", ":", "#", "?", "/", "@", "&", "=", "%", "[", " ", ";", ",", "1", "\\"} {
			f.Add(scheme, around, around, "host:1/db", "table")
			f.Add(scheme, around, "", "[::1]/"+around, "p"+around)
		}
	}
	f.Fuzz(func(t *testing.T, scheme, before, after, rest, parameter string) {
		if all := strings.ToUpper(scheme + before + after + rest + parameter); strings.ContainsAny(all, "QZX") {
			t.Skip()
		}
		if strings.ContainsAny(before, "&=") || strings.Contains(parameter, "&") {
			t.Skip("the password would be the value of another parameter")
		}
		secret := before + marker + after
		token := secret
		if i := strings.IndexByte(after, ':'); i >= 0 && i < len(after)-1 {
			token = marker // otherwise the text would be a name and a password
		}
		for _, address := range []string{
			scheme + "://user:" + secret + "@" + rest,
			scheme + "://:" + secret + "@" + rest,
			scheme + "://user:" + url.QueryEscape(secret) + "@" + rest,
			scheme + "://user@" + rest + "?password=" + secret,
			scheme + "://user:" + secret + "@" + rest + "?" + parameter,
			scheme + "://" + rest + "?" + secret,
			scheme + "://" + rest + "?pass" + parameter + "=" + secret,
			scheme + "://" + rest + "?a=1;auth=" + secret + "&" + parameter,
			"nats://" + token + "@" + rest,
			"nats://" + token + "@" + rest + "," + token + "@" + rest,
			scheme + ":user:" + secret + "@" + rest,
			"host=" + rest + " password=" + secret,
			rest + ":" + secret + "@" + rest,
		} {
			if redacted := Redact(address); strings.Contains(strings.ToUpper(redacted), marker) {
				t.Fatalf("%q becomes %q", address, redacted)
			}
		}
	})
}
