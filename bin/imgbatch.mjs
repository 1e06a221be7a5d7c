#!/usr/bin/env node
import "./imgbatch.cjs";
