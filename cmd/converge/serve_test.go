package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// What no flag says comes from the rules of the installation: beyond loopback the sign-in and the address, on loopback only what a sign-in needs.
func TestServeReadsTheRules(t *testing.T) {
	rules := protocol.InstallationStatus{Rules: protocol.Rules{Number: 1, Rules: entities.Rules{
		Board:    "https://converge.shop.dev",
		Identity: &entities.Identity{Issuer: "https://id.shop.dev", Audience: "converge-api", UserClaim: "login", GroupsClaim: "teams"},
	}}}
	for name, tt := range map[string]struct {
		given, want serveOptions
		rules       any
	}{
		"beyond loopback": {given: serving(":8234", ""), want: signing(serving(":8234", "https://converge.shop.dev"), "https://id.shop.dev", "converge-api", "login", "teams")},
		"a sign-in on loopback": {
			given: withKeys(serving("127.0.0.1:8234", "")),
			want:  withKeys(signing(serving("127.0.0.1:8234", ""), "https://id.shop.dev", "converge-api", "login", "teams")),
		},
		"flags first": {
			given: signing(serving(":8234", "https://other.shop.dev"), "https://other.id.dev", "", "", ""),
			want:  signing(serving(":8234", "https://other.shop.dev"), "https://other.id.dev", "", "", "groups"),
		},
		"loopback":          {given: serving("127.0.0.1:8234", ""), want: grouped(serving("127.0.0.1:8234", "")), rules: errors.New("not to be read")},
		"no rules":          {given: serving(":8234", ""), want: grouped(serving(":8234", "")), rules: protocol.InstallationStatus{}},
		"no such workflow":  {given: serving(":8234", ""), want: grouped(serving(":8234", "")), rules: "missing"},
		"only an audience":  {given: signing(serving("127.0.0.1:1", ""), "", "other", "", "roles"), want: signing(serving("127.0.0.1:1", ""), "https://id.shop.dev", "other", "login", "roles")},
		"anonymous allowed": {given: anonymous(serving(":8234", "")), want: grouped(anonymous(serving(":8234", "https://converge.shop.dev")))},
		"an address that callers use": {
			given: anonymous(serving("10.0.0.1:8234", "")), want: grouped(anonymous(serving("10.0.0.1:8234", ""))), rules: errors.New("not to be read"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := &fakeAPI{statuses: map[string][]any{}}
			switch tt.rules {
			case nil:
				api.statuses[protocol.InstallationID()] = []any{rules}
			case "missing":
			default:
				api.statuses[protocol.InstallationID()] = []any{tt.rules}
			}
			require.NoError(t, tt.given.fromRules(t.Context(), api))
			require.Equal(t, tt.want, tt.given)
		})
	}
	o := serving(":8234", "")
	err := o.fromRules(t.Context(), &fakeAPI{statuses: map[string][]any{protocol.InstallationID(): {errors.New("no worker answers")}}})
	require.EqualError(t, err, "read the rules of the installation: no worker answers")
}

func serving(listen, base string) (o serveOptions) {
	o.server.Listen, o.server.BaseURL = listen, base
	return o
}

func grouped(o serveOptions) serveOptions {
	o.signIn.GroupsClaim = "groups"
	return o
}

func signing(o serveOptions, issuer, audience, user, groups string) serveOptions {
	o.signIn.Issuer, o.signIn.Audience, o.signIn.UserClaim, o.signIn.GroupsClaim = issuer, audience, user, groups
	return o
}

func withKeys(o serveOptions) serveOptions {
	o.keyFile = "keys"
	return o
}

func anonymous(o serveOptions) serveOptions {
	o.server.AllowAnonymous = true
	return o
}
