package discovery

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// curatorFormats contains JSON that Curator's JsonInstanceSerializer has written.
var curatorFormats = map[string]Instance{
	`{"name":"shop","id":"one","address":"10.0.0.1","port":null,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000123,"serviceType":"DYNAMIC","uriSpec":null}`: {
		Name: "shop", ID: "one", Address: "10.0.0.1", Registered: 1700000000123, Type: Dynamic,
	},
	`{"name":"shop","id":"one","address":"10.0.0.1","port":null,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000123,"serviceType":"DYNAMIC","uriSpec":null,"enabled":false}`: {
		Name: "shop", ID: "one", Address: "10.0.0.1", Registered: 1700000000123, Type: Dynamic, Disabled: true,
	},
	`{"name":"shop","id":"one","address":"10.0.0.1","port":80,"sslPort":443,"payload":"pay\"<é","registrationTimeUTC":1700000000123,"serviceType":"STATIC","uriSpec":{"parts":[{"value":"scheme","variable":true},{"value":"://","variable":false},{"value":"address","variable":true},{"value":":","variable":false},{"value":"port","variable":true},{"value":"/x","variable":false}]}}`: {
		Name: "shop", ID: "one", Address: "10.0.0.1", Port: 80, SSLPort: 443, Payload: json.RawMessage(`"pay\"<é"`), Registered: 1700000000123, Type: Static,
		URI: URISpec{{"scheme", true}, {"://", false}, {"address", true}, {":", false}, {"port", true}, {"/x", false}},
	},
	`{"name":"shop","id":"one","address":"10.0.0.1","port":80,"sslPort":443,"payload":{"@class":"java.util.LinkedHashMap","k":"v"},"registrationTimeUTC":1700000000123,"serviceType":"PERMANENT","uriSpec":null}`: {
		Name: "shop", ID: "one", Address: "10.0.0.1", Port: 80, SSLPort: 443, Payload: json.RawMessage(`{"@class":"java.util.LinkedHashMap","k":"v"}`), Registered: 1700000000123, Type: Permanent,
	},
	`{"name":"shop","id":"one","address":null,"port":null,"sslPort":null,"payload":["java.lang.Long",5],"registrationTimeUTC":0,"serviceType":"DYNAMIC","uriSpec":{"parts":[]}}`: {
		Name: "shop", ID: "one", Payload: json.RawMessage(`["java.lang.Long",5]`), Type: Dynamic, URI: URISpec{},
	},
}

// TestInstance_HasFormatOfCurator checks that this package reads and writes an instance in the format in which
// Curator reads and writes instances.
func TestInstance_HasFormatOfCurator(t *testing.T) {
	for text, want := range curatorFormats {
		got, err := decode([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, got.validate())
		data, err := encode(got)
		require.NoError(t, err)
		require.Equal(t, text, string(data))
	}
	for text, disabled := range map[string]bool{
		`{"name":"s","id":"1","enabled":true}`: false, `{"name":"s","id":"1","enabled":false}`: true,
		`{"name":"s","id":"1","enabled":null,"unknown":[1]}`: false,
	} {
		got, err := decode([]byte(text))
		require.NoError(t, err)
		require.Equal(t, Instance{Name: "s", ID: "1", Type: Dynamic, Disabled: disabled}, got)
	}
}

var invalidData = []string{"", "null", "7", "[]", "{", `{"port":"x"}`, `{"port":1e10}`, `{"name":7}`, `{"uriSpec":7}`, "\xff", `{"name":"` + "\xff" + `"}`, "10.0.0.1"}

// TestDecode_RejectsInvalidFormat checks that decode returns ErrFormat for data that is not an instance.
func TestDecode_RejectsInvalidFormat(t *testing.T) {
	for _, text := range invalidData {
		_, err := decode([]byte(text))
		require.ErrorIs(t, err, recipes.ErrFormat, "%q", text)
	}
}

// FuzzDecode checks that decode returns either ErrFormat, or an instance that is the same after it is encoded and
// decoded again.
func FuzzDecode(f *testing.F) {
	for text := range curatorFormats {
		f.Add([]byte(text))
	}
	for _, text := range invalidData {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := decode(data)
		if err != nil {
			require.ErrorIs(t, err, recipes.ErrFormat)
			require.Zero(t, i)
			return
		}
		_, _ = i.BuildURI(nil), i.validate()
		again, err := encode(i)
		require.NoError(t, err)
		j, err := decode(again)
		require.NoError(t, err)
		if i.Payload != nil {
			require.JSONEq(t, string(i.Payload), string(j.Payload))
		}
		i.Payload, j.Payload = nil, nil
		require.Equal(t, i, j)
	})
}

// TestBuildURI_ReplacesVariables checks that BuildURI replaces the variables of a URI template as Curator does,
// and that ParseURISpec rejects invalid templates.
func TestBuildURI_ReplacesVariables(t *testing.T) {
	i := Instance{Name: "shop", ID: "one", Address: "h", Port: 80, Registered: 5, Type: Dynamic}
	for template, want := range map[string]string{
		"":                                   "",
		"{scheme}://{address}:{ port }/{x}y": "http://h:80/y",
		"{name}-{id}-{ssl-port}-{registration-time-utc}-{service-type}": "shop-one--5-dynamic",
		"{[}a{]}{}": "{a}",
		"plain":     "plain",
	} {
		spec, err := ParseURISpec(template)
		require.NoError(t, err)
		i.URI = spec
		require.Equal(t, want, i.BuildURI(nil))
	}
	i.SSLPort = 443
	i.URI, _ = ParseURISpec("{scheme}:{ssl-port}/{path}")
	require.Equal(t, "https:443/a", i.BuildURI(map[string]string{"path": "a"}))
	for _, template := range []string{"{", "}", "a{b{c}}", "{a", "a}"} {
		_, err := ParseURISpec(template)
		require.ErrorIs(t, err, recipes.ErrInvalid, template)
	}
}

// FuzzParseURISpec parses arbitrary templates, and builds a URI with those that are valid.
func FuzzParseURISpec(f *testing.F) {
	f.Add("{scheme}://{address}:{port}/api")
	f.Add("{[}{ ] }{}")
	f.Fuzz(func(t *testing.T, template string) {
		spec, err := ParseURISpec(template)
		if err != nil {
			require.ErrorIs(t, err, recipes.ErrInvalid)
			return
		}
		literal := 0
		for _, part := range spec {
			if !part.Variable {
				literal += len(part.Value)
			}
		}
		require.LessOrEqual(t, literal, len(template))
		uri := Instance{Name: "shop", Address: "a", Port: 1, URI: spec}.BuildURI(nil)
		require.LessOrEqual(t, len(uri), 10*len(template))
	})
}
