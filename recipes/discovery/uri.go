package discovery

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// URISpec is the template of an instance's URI, or nil if it is not set.
type URISpec []URIPart

// URIPart is a literal text or the name of a variable.
type URIPart struct {
	// Value is the text, or the name of the variable.
	Value string `json:"value"`
	// Variable reports whether Value is the name of a variable.
	Variable bool `json:"variable"`
}

// ParseURISpec parses a template like Curator's UriSpec, such as
// "{scheme}://{address}:{port}/api".
func ParseURISpec(template string) (URISpec, error) {
	spec := URISpec{}
	for rest := template; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		switch {
		case at < 0:
			return append(spec, URIPart{Value: rest}), nil
		case rest[at] == '}':
			return nil, fmt.Errorf("%w: URI %q: } without {", connection.ErrInvalid, template)
		case at > 0:
			spec = append(spec, URIPart{Value: rest[:at]})
		}
		rest = rest[at+1:]
		end := strings.IndexAny(rest, "{}")
		if end < 0 || rest[end] == '{' {
			return nil, fmt.Errorf("%w: URI %q: a { has no matching }", connection.ErrInvalid, template)
		}
		if end > 0 {
			spec = append(spec, URIPart{Value: strings.TrimSpace(rest[:end]), Variable: true})
		}
		rest = rest[end+1:]
	}
	return spec, nil
}

// BuildURI returns the URI with all variables replaced, or "" if there is no template.
// Variables are those of Curator: scheme (https if SSLPort is set, otherwise http), name,
// id, address, port, ssl-port, registration-time-utc, service-type, and [ and ] for braces.
// The given variables take precedence. Unknown variables are replaced by an empty text.
func (i Instance) BuildURI(variables map[string]string) string {
	var b strings.Builder
	for _, part := range i.URI {
		value := part.Value
		if part.Variable {
			var ok bool
			if value, ok = variables[part.Value]; !ok {
				value = i.variableValue(part.Value)
			}
		}
		b.WriteString(value)
	}
	return b.String()
}

// variableValue returns the value of one of Curator's variables, or "" if Curator does not define it.
func (i Instance) variableValue(name string) string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	switch name {
	case "scheme":
		if i.SSLPort != 0 {
			return "https"
		}
		return "http"
	case "name":
		return i.Name
	case "id":
		return i.ID
	case "address":
		return i.Address
	case "port":
		return number(i.Port)
	case "ssl-port":
		return number(i.SSLPort)
	case "registration-time-utc":
		return strconv.FormatInt(i.Registered, 10)
	case "service-type":
		return strings.ToLower(string(i.Type))
	case "[":
		return "{"
	case "]":
		return "}"
	}
	return ""
}
