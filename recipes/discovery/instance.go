package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Type is the lifetime of an instance's znode.
type Type string

// The types that can be registered. Other types, such as Curator's DYNAMIC_SEQUENTIAL, can
// only be read.
const (
	// Dynamic instances exist until their session ends. Dynamic is the default.
	Dynamic Type = "DYNAMIC"
	// Static instances exist until they are removed, even if the process has died.
	Static Type = "STATIC"
	// Permanent instances have the same lifetime as Static instances. As in Curator, only
	// the meaning differs.
	Permanent Type = "PERMANENT"
)

// Instance is an instance of a service.
type Instance struct {
	// Name is the name of the service. Name and ID are parts of the znode's path, so they
	// must not contain a slash.
	Name string
	// ID identifies the instance among those of its service. If it is empty,
	// [Discovery.Register] generates a random ID. A process that uses the same ID again
	// after a restart waits until the session of the previous process has ended.
	ID string
	// Address is the host name or IP address. It may be empty.
	Address string
	// Port is the port number, or 0 if the instance does not listen on one.
	Port int
	// SSLPort is the number of the TLS port, or 0 if the instance does not offer TLS.
	SSLPort int
	// Payload is JSON, or nil. Curator determines its Java type by the property "@class" of
	// an object or by a pair such as ["java.lang.Long", 5], and the class must exist in the
	// reader. An object without "@class" is read as a map; strings, booleans and numbers
	// need no type. Other arrays would cause an error in Curator's readers and cannot be
	// registered.
	Payload json.RawMessage
	// Registered is when the instance was first registered, in milliseconds since the Unix
	// epoch. Register sets it if it is 0.
	Registered int64
	// Type is the lifetime of the znode. Register sets it to Dynamic if it is empty.
	Type Type
	// URI is the template of the instance's URI, or nil.
	URI URISpec
	// Disabled excludes the instance from the instances that providers choose. Curator
	// always reads it, but writes it only if compatibility with its old versions is
	// switched off.
	Disabled bool
}

// jsonInstance is the JSON representation of an instance, with the fields in Curator's order.
type jsonInstance struct {
	Name       string          `json:"name"`
	ID         string          `json:"id"`
	Address    *string         `json:"address"`
	Port       *int32          `json:"port"`
	SSLPort    *int32          `json:"sslPort"`
	Payload    json.RawMessage `json:"payload"`
	Registered int64           `json:"registrationTimeUTC"`
	Type       Type            `json:"serviceType"`
	URI        *jsonURI        `json:"uriSpec"`
	// Enabled is nil, and omitted from the JSON, for an enabled instance: old versions of Curator fail on fields
	// that they do not know. Curator omits the field as well.
	Enabled *bool `json:"enabled,omitempty"`
}

type jsonURI struct {
	Parts []URIPart `json:"parts"`
}

// MarshalJSON returns the JSON that Curator's JsonInstanceSerializer writes.
func (i Instance) MarshalJSON() ([]byte, error) {
	w := jsonInstance{Name: i.Name, ID: i.ID, Payload: i.Payload, Registered: i.Registered, Type: i.Type}
	if i.Address != "" {
		w.Address = &i.Address
	}
	if i.Port != 0 {
		port := int32(i.Port)
		w.Port = &port
	}
	if i.SSLPort != 0 {
		port := int32(i.SSLPort)
		w.SSLPort = &port
	}
	if i.URI != nil {
		w.URI = &jsonURI{i.URI}
	}
	if i.Disabled {
		w.Enabled = new(bool)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON parses the JSON that Curator's serializer writes, in both of its modes.
// Unknown fields are ignored.
func (i *Instance) UnmarshalJSON(data []byte) error {
	w := jsonInstance{Type: Dynamic}
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("%w: %w", recipes.ErrFormat, err)
	}
	*i = Instance{Name: w.Name, ID: w.ID, Payload: w.Payload, Registered: w.Registered, Type: w.Type}
	if bytes.Equal(i.Payload, []byte("null")) {
		i.Payload = nil
	}
	if w.Address != nil {
		i.Address = *w.Address
	}
	if w.Port != nil {
		i.Port = int(*w.Port)
	}
	if w.SSLPort != nil {
		i.SSLPort = int(*w.SSLPort)
	}
	if w.URI != nil {
		if i.URI = w.URI.Parts; i.URI == nil {
			i.URI = URISpec{}
		}
	}
	i.Disabled = w.Enabled != nil && !*w.Enabled
	return nil
}

// encode returns the data of a znode. encode does not use json.Marshal, which would escape HTML in the result of
// MarshalJSON.
func encode(i Instance) ([]byte, error) { return i.MarshalJSON() }

// decode returns the instance that the data of a znode contains.
func decode(data []byte) (Instance, error) {
	var i Instance
	if len(data) == 0 || !utf8.Valid(data) || !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return i, fmt.Errorf("%w: not a JSON object", recipes.ErrFormat)
	}
	if err := i.UnmarshalJSON(data); err != nil {
		return Instance{}, err
	}
	return i, nil
}

// checkName returns an error if name cannot be an element of a path. The error says what the name is, for example
// an ID.
func checkName(what, name string) error {
	if name == "" || strings.Contains(name, "/") || !utf8.ValidString(name) || connection.CheckPath("/"+name) != nil {
		return fmt.Errorf("%w: %s %q is not a valid znode name", connection.ErrInvalid, what, name)
	}
	return nil
}

// validate returns an error if the instance cannot be registered, or if Curator could not read it.
func (i Instance) validate() error {
	if err := checkName("name", i.Name); err != nil {
		return err
	}
	if err := checkName("id", i.ID); err != nil {
		return err
	}
	switch {
	case i.Type != Dynamic && i.Type != Static && i.Type != Permanent:
		return fmt.Errorf("%w: unknown type %q", connection.ErrInvalid, i.Type)
	case i.Port < 0 || i.Port > 65535 || i.SSLPort < 0 || i.SSLPort > 65535:
		return fmt.Errorf("%w: ports %d and %d: must be from 0 to 65535", connection.ErrInvalid, i.Port, i.SSLPort)
	case i.Payload != nil && !json.Valid(i.Payload):
		return fmt.Errorf("%w: payload is not JSON", connection.ErrInvalid)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(i.Payload, " \t\r\n"), []byte("[")) {
		return nil
	}
	var pair []json.RawMessage
	var class string
	if json.Unmarshal(i.Payload, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[0], &class) != nil || class == "" {
		return fmt.Errorf("%w: payload is an array, which Curator cannot read", connection.ErrInvalid)
	}
	return nil
}

// equal reports whether two instances have the same content.
func (i Instance) equal(other Instance) bool {
	return i.identity() == other.identity() && i.Address == other.Address && i.Port == other.Port && i.SSLPort == other.SSLPort &&
		i.Type == other.Type && i.Disabled == other.Disabled && slices.Equal(i.URI, other.URI) && string(i.Payload) == string(other.Payload)
}
