// The entry point: mounts the page.
import { mount } from "svelte";
import "./app.css";
import Page from "./view/Page.svelte";

const target = document.getElementById("page");
if (target) mount(Page, { target });
