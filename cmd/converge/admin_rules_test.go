package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/intent/compile"
)

func TestRulesText_G2(t *testing.T) {
	rules, err := compile.Rules(fstest.MapFS{"rules.yaml": &fstest.MapFile{Data: []byte(`apiVersion: converge/v1
kind: Installation
authorization:
- {verbs: [publish], to: [alice]}
- {verbs: [publish], applications: ["shop-*"], to: ["group:shop"]}
baseline:
  protections:
  - {name: year-end, allowedTimes: {timeZone: Europe/Paris, freezes: [{from: "2026-12-20", to: "2027-01-03"}]}}
  approvals:
  - {name: go-live, minApprovers: 2, approvers: ["group:sre"], notReleaser: true, where: {releaseChannels: [prod-*], runtimes: [eks-*]}}
  bypass: ["group:platform"]
  required: [approve]
  limits: {services: 50, releaseChannels: 10, runtimesOf: [platform]}
`)}}, "rules.yaml")
	require.NoError(t, err)
	require.Equal(t, `publish of any new application: alice
publish of application/shop-*: group:shop
baseline: baseline/year-end (allowedTimes) everywhere
baseline: approval/baseline/go-live from 2 of group:sre except the releaser in channels prod-* on runtimes eks-*
baseline: bypassed by group:platform
baseline: proof of identity required in every application to approve
baseline: at most 50 services in an application
baseline: at most 10 release channels in an application
baseline: only runtimes of platform`, strings.Join(explain.Rules(rules), "\n"))
}
